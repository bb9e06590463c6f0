# ruff: noqa
"""Bytes that are no text in any encoding, behind a line that names one."""

TASK = "a1.broadcast"
SEEN = "compile|encoding|null bytes|utf-8|import"
SOURCE = "\n\n# -*- coding: rot13 -*-\n\x00\ud800\n"
