"""The checks of assignment 9, by what they are about."""

from __future__ import annotations

from grader.checks.a9_checks_costs import *  # noqa: F403
from grader.checks.a9_checks_mesh import *  # noqa: F403
from grader.checks.a9_checks_plan import *  # noqa: F403
from grader.checks.a9_checks_train import *  # noqa: F403
