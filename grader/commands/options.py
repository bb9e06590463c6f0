"""Options that several commands of `grader` share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Lang(StrEnum):
    """Language of tables and messages."""

    en = "en"
    zh = "zh"


Language = Annotated[
    Lang | None,
    typer.Option("--lang", help="language of tables and messages; default: the locale's"),
]
Solution = Annotated[str, typer.Option(help="assignments, reference or a folder")]
