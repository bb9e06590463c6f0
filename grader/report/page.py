"""Pages in HTML: one file each, which needs nothing beside it and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from grader.report.language import text, translated

_TEMPLATES: Final = Path(__file__).parent / "templates"
_MOST_CHARACTERS: Final = 6000


@cache
def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["points"] = lambda points: f"{points:g}"
    environment.filters["short"] = _short
    environment.globals["say"] = text
    environment.globals["translated"] = translated
    return environment


def _short(message: str) -> str:
    if len(message) <= _MOST_CHARACTERS:
        return message
    return f"{message[:_MOST_CHARACTERS]}\n… {len(message) - _MOST_CHARACTERS} more characters"


def render(template: str, **values: object) -> str:
    """A page of `templates/`; everything that is put into it is escaped."""
    page: str = _environment().get_template(template).render(**{"lang": "en", **values})
    return page


def report_page(
    document: Mapping[str, Any], *, lang: str = "en", facts: Sequence[tuple[str, str]] = ()
) -> str:
    """The results of a run as a page. facts: lines of a table above them."""
    return render("report.html", document=document, facts=facts, lang=lang)
