"""The messages of a schedule: which there are, in which order, and how they get there.

Room for helpers of `executor.py`. Nothing in this file is asked for or graded by itself.
"""

from __future__ import annotations
