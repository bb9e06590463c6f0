"""The words of the reports."""

from __future__ import annotations

import string
from typing import get_args

import pytest

from grader.checks.results import TaskStatus
from grader.report.language import CATALOGUE, text


def _fields(words: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(words) if name}


def test_both_languages_have_the_same_words_and_fields() -> None:
    assert CATALOGUE["en"].keys() == CATALOGUE["zh"].keys()
    for key, words in CATALOGUE["en"].items():
        assert _fields(words) == _fields(CATALOGUE["zh"][key]), key


@pytest.mark.parametrize("status", get_args(TaskStatus))
def test_every_status_has_words(status: str) -> None:
    assert text("zh", status) != text("en", status)
