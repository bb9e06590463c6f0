"""The words of the reports."""

from __future__ import annotations

from typing import get_args

import pytest

from grader.checks.results import TaskStatus
from grader.report.language import text


@pytest.mark.parametrize("status", get_args(TaskStatus))
def test_every_status_has_words(status: str) -> None:
    assert text("zh", status) != text("en", status)
