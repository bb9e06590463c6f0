"""`grader batch`: its options."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from grader.checks.settings import CannotRun
from grader.commands.options import Language
from grader.report.language import language_of


class Executor(StrEnum):
    """Where submissions are graded. slurm-local: submitit's own stand-in for a cluster."""

    local = "local"
    slurm = "slurm"
    slurm_local = "slurm-local"


class Device(StrEnum):
    """Where the solutions' tensors live."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def _option(text: str, metavar: str | None = None, hidden: bool = False) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=text, metavar=metavar, hidden=hidden)
    return option


def batch(
    sheet: Annotated[Path, typer.Argument(help="a table of students and commit links")],
    what: Annotated[
        list[str] | None,
        typer.Argument(help="a1, a1_collectives or a1.broadcast; else course.toml's"),
    ] = None,
    out: Annotated[Path, _option("database, gradebook and pages; go on there", "DIR")] = Path(
        "batch"
    ),
    course: Annotated[
        Path | None, _option("default: course.toml beside the sheet or here", "FILE")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="submissions graded at once")] = 1,
    deadline: Annotated[
        str | None, _option('for everything: "2026-03-20 23:59", or none', "TIME")
    ] = None,
    timezone: Annotated[
        str | None, _option("of times that name none: Asia/Shanghai, UTC+8", "ZONE")
    ] = None,
    device: Annotated[Device, _option("auto: a GPU where there is one")] = Device.auto,
    no_throughput: Annotated[bool, typer.Option("--no-throughput", help="no timed checks")] = False,
    seconds: Annotated[
        float | None, typer.Option(min=1, max=1e6, help="wall time for one submission")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="of all inputs; else a secret one")
    ] = None,
    only: Annotated[
        list[str] | None, _option("grade this student again, with the recorded seed", "STUDENT")
    ] = None,
    any_kit: Annotated[
        bool, typer.Option("--any-kit", help="go on with another version of the kit than before")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="refuse links to branches and tags")
    ] = False,
    student_column: Annotated[str | None, _option("head of the students' column", "NAME")] = None,
    link_column: Annotated[str | None, _option("head of the links' column", "NAME")] = None,
    time_column: Annotated[str | None, _option("head of the times' column", "NAME")] = None,
    time_format: Annotated[
        str | None, _option('of that column, as strptime reads it: "%d/%m/%Y %H:%M:%S"', "FORMAT")
    ] = None,
    executor: Annotated[
        Executor, _option("slurm: through submitit, --jobs at once")
    ] = Executor.local,
    allow_local: Annotated[
        bool, typer.Option("--allow-local", hidden=True, help="paths for links, for tests")
    ] = False,
    unsandboxed: Annotated[
        bool, typer.Option("--unsandboxed", help="students' code can read what you can: grade it")
    ] = False,
    lang: Language = None,
) -> int:
    """Grade everybody's latest valid link.

    Killed or interrupted: the same command goes on.
    """
    from grader.submission.batch import BatchOptions, run_batch
    from grader.submission.course import Course, load_course, moment
    from grader.submission.pages import summary
    from grader.submission.sheet import BadSheet, plain_student
    from grader.submission.times import BadTime, parse_zone

    found = course or _course_beside(sheet)
    try:
        settings = Course() if found is None else load_course(found)
        if timezone is not None:
            settings = dataclasses.replace(settings, zone=parse_zone(timezone))
        if deadline is not None:
            due = None if deadline == "none" else moment(deadline, settings.zone)
            settings = dataclasses.replace(settings, deadline=due, deadlines={})
        columns = {
            "student": student_column,
            "link": link_column,
            "time": time_column,
            "time_format": time_format,
        }
        named = {key: value for key, value in columns.items() if value is not None}
        settings = dataclasses.replace(
            settings, columns=dataclasses.replace(settings.columns, **named)
        )
        options = BatchOptions(
            device=device.value,
            throughput=not no_throughput,
            jobs=jobs,
            seconds=seconds,
            only=tuple(map(plain_student, only or ())),
            any_kit=any_kit,
            strict=strict,
            allow_local=allow_local,
            unsandboxed=unsandboxed,
            seed=seed,
            executor=executor.value,
            language=language_of(lang),
        )
        grades = run_batch(sheet, what or (), out, options, _say, settings)
    except (BadSheet, BadTime) as error:
        raise CannotRun(str(error)) from None
    except KeyboardInterrupt:
        raise CannotRun("interrupted: the same command goes on where this one stopped") from None
    print(summary(grades, options.language))
    print(f"{out / 'gradebook.csv'}, {out / 'index.html'}")
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _course_beside(sheet: Path) -> Path | None:
    for folder in (sheet.parent, Path.cwd()):
        if (folder / "course.toml").is_file():
            return folder / "course.toml"
    return None
