"""`grader submit`: what is wrong with the checkout, its grade, its report, its link."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from grader.checks.settings import CannotRun, project_folder
from grader.commands.options import Language
from grader.report.language import language_of, text, translated

READY, NOT_READY = 0, 1


def submit(
    what: Annotated[
        list[str] | None, typer.Argument(help="a1, a1_collectives or a1.broadcast; else everything")
    ] = None,
    remote: Annotated[str, typer.Option(help="default: the branch's own, or origin")] = "",
    branch: Annotated[str, typer.Option(help="that work should be on; the remote's main one")] = "",
    report: Annotated[Path, typer.Option(metavar="DIR", help="the report")] = Path("report"),
    no_throughput: Annotated[bool, typer.Option("--no-throughput", help="no timed checks")] = False,
    no_grade: Annotated[bool, typer.Option("--no-grade", help="only look at the checkout")] = False,
    lang: Language = None,
) -> int:
    """Look at the checkout, grade, and print the link to hand in.

    Exit status: 0 with a link, 1 without.
    """
    from grader.submission.checkout import NoCheckout, look

    project, language = project_folder(), language_of(lang)
    try:
        found = look(project, remote, branch)
    except NoCheckout as error:
        raise CannotRun(f"submit: {error}") from None
    _say(found.problems, found.notes, language)
    if not no_grade:
        _grade(what or [], report, no_throughput, language, found.link, found.sha)
    if not found.link:
        print(text(language, "no_link"))
        if not no_grade:  # the table of results has pushed them out of sight
            _say(found.problems, [], language)
        return NOT_READY
    print(found.link)
    return READY


def _say(problems: list[str], notes: list[str], language: str) -> None:
    for key, messages in (("problem", problems), ("note", notes)):
        for message in messages:
            print(text(language, key, message=translated(language, message)))
    sys.stdout.flush()


def _grade(
    what: list[str], report: Path, no_throughput: bool, lang: str, link: str, sha: str
) -> None:
    """Grade as `check` does, in a process of its own; its report as a page, too."""
    from grader.report.files import write_atomically
    from grader.report.page import report_page

    command = [sys.executable, "-m", "grader", "check", *what]
    command += ["--report", str(report), "--lang", lang]
    command += ["--no-throughput"] * no_throughput
    code = subprocess.run(command).returncode
    if code not in (0, 1):
        raise CannotRun("submit: the grader could not be run; see above")
    document = json.loads((report / "results.json").read_text(encoding="utf-8"))
    facts = [(text(lang, name), value) for name, value in (("commit", sha), ("link", link))]
    facts = [(name, value) for name, value in facts if value]
    write_atomically(report / "report.html", report_page(document, lang=lang, facts=facts))
    print(f"{report / 'report.html'}, {report / 'report.md'}")
