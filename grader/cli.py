"""The `grader` command. Whatever is slow to import is imported by the command that needs it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from grader import __version__, tasks
from grader.checks import workers
from grader.checks.settings import CannotRun, project_folder, solution_folder
from grader.commands.batch import batch
from grader.commands.draw import draw
from grader.commands.help_text import Commands, speak
from grader.commands.hint import hint
from grader.commands.notebook import app as notebooks
from grader.commands.options import Language, Solution
from grader.commands.plan import plan
from grader.commands.submit import submit
from grader.report.language import language_of, text, translated

# Exit statuses of `check`.
ALL_EARNED, NOT_ALL_EARNED, NOT_CARRIED_OUT = 0, 1, 2

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Grades distributed training homework.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class Device(StrEnum):
    """Where the solution's tensors live."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


What = Annotated[list[str] | None, typer.Argument(help="a1, a1_collectives or a1.broadcast")]

# What stood after `--` on the command line; `main` cuts it off before typer sees it.
_options_after: list[str] = []
# What stood before it.
_given: list[str] = []


@app.command(epilog="Options after -- go to pytest: grader check a1 -- -k broadcast -x")
def check(
    what: What = None,
    solution: Solution = "assignments",
    device: Annotated[Device, typer.Option(help="auto: a GPU where there is one")] = Device.auto,
    seed: Annotated[int, typer.Option(help="seed of all inputs")] = 0,
    no_throughput: Annotated[bool, typer.Option("--no-throughput", help="no timed checks")] = False,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="run the solution in this process, to debug it")
    ] = False,
    pdb: Annotated[bool, typer.Option("--pdb", help="debugger at failures; in process")] = False,
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="run the solution in a sandbox (bubblewrap)")
    ] = False,
    brokered: Annotated[
        bool,
        typer.Option("--brokered", help="confirm volume in a world of sandboxed processes"),
    ] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="write results here")] = None,
    report: Annotated[Path | None, typer.Option(metavar="DIR", help="write a page here")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="grade again what an edit touches, without timed checks")
    ] = False,
    lang: Language = None,
) -> int:
    """Grade a solution: everything, or what is named.

    Exit status: 0 all points earned, 1 not, 2 could not be carried out.
    """
    if (code := workers.adopt()) is not None:
        return code
    selected = tasks.select(what or ())
    folder = solution_folder(solution)
    in_process = in_process or pdb
    language = language_of(lang)
    if watch and (in_process or json or report):
        raise CannotRun("--watch goes without --in-process, --pdb, --json and --report")
    if in_process and (sandbox or brokered):
        raise CannotRun("--in-process and --pdb run the solution here: not with --sandbox")
    if brokered and not sandbox:
        raise CannotRun("--brokered needs --sandbox: its ranks are sandboxed processes")
    if sandbox:
        workers.use_sandbox(folder)
    if not in_process:
        workers.start({task.id.partition(".")[0] for task in selected})
    try:
        from rich.console import Console

        from grader.checks.results import Observer, Results
        from grader.checks.run import run_checks
        from grader.report.files import JsonWriter, check_writable
        from grader.report.history import History
        from grader.report.terminal import Progress, print_table

        console = Console()
        history = History(project_folder(), folder)
        observers: list[Observer] = [history]
        if not pdb:
            observers.append(Progress(console, language))
        if json is not None:
            check_writable(json)
            observers.append(JsonWriter(json))
        if report is not None:
            check_writable(report / "report.md")
            from grader.report.whole import WholeReport

            writer = WholeReport(report, folder, language, throughput=not no_throughput)
        options = [f"--solution={solution}", f"--device={device.value}", f"--seed={seed}"]
        options += ["--no-throughput"] * (no_throughput or watch) + ["--in-process"] * in_process
        options += ["--sandbox"] * sandbox + ["--brokered"] * brokered
        options += [f"--lang={language}"]
        if watch:
            from grader.commands.watch import QUICKER, Watch
            from grader.report.terminal import LiveProgress

            def grade(touched: Sequence[tasks.Task]) -> Results:
                told: list[Observer] = [history, LiveProgress(console, language)]
                return run_checks(touched, options, [*QUICKER, *_options_after], told)

            Watch(console, folder, selected, language, grade).forever(selected if what else ())
            return 0
        with nullcontext() if report is None else writer:
            results = run_checks(
                selected,
                options,
                ["--pdb"] * pdb + _options_after,
                observers,
                silent=not pdb,
            )
        if json is not None:
            JsonWriter(json).write(results)
        print_table(console, results, language)
        if report is not None:
            _say(text(language, "report_written", path=writer.write(results)))
        if history.problem is not None:
            _say(text(language, "note_no_history", problem=history.problem))
    finally:
        workers.stop()
    if results.interrupted:
        return NOT_CARRIED_OUT
    return ALL_EARNED if results.complete else NOT_ALL_EARNED


@app.command(epilog="Options after -- go to the script: grader sim train.py --ranks 8 -- --lr 0.1")
def sim(
    script: Annotated[Path, typer.Argument(help="any torch.distributed script, unchanged")],
    ranks: Annotated[int, typer.Option(min=1, help="simulated ranks")] = 4,
    cluster: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="a preset or a .toml file")
    ] = "uniform",
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write a trace for Perfetto here")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="draw ranks over virtual time here")
    ] = None,
    schedule: Annotated[
        int | None, typer.Option(help="another order of the ranks, by number")
    ] = None,
    seed: Annotated[int, typer.Option(help="of each rank's random and numpy")] = 0,
    time_limit: Annotated[
        float, typer.Option(help="seconds a rank may run without communicating")
    ] = 60.0,
    lang: Language = None,
) -> int:
    """Run a script on simulated ranks: its faults, its virtual time.

    Exit status: 1 with faults.
    """
    from grader.fabric.script import ScriptError
    from grader.report.simulation import cluster_of, simulate_script

    try:
        return simulate_script(
            script,
            ranks,
            cluster_of(cluster, ranks),
            _options_after,
            trace_file=trace,
            picture_file=picture,
            seed=seed,
            schedule=schedule,
            time_limit=time_limit,
            out=sys.stdout,
            language=language_of(lang),
        )
    except (ScriptError, ValueError) as error:
        raise CannotRun(str(error)) from None


@app.command()
def bench(
    what: What = None,
    solution: Solution = "assignments",
    ranks: Annotated[int, typer.Option(min=2, help="real processes")] = 4,
    sizes: Annotated[str, typer.Option(help="of the whole vector")] = "64K,1M,16M",
    device: Annotated[Device, typer.Option(help="auto: a GPU where there is one")] = Device.auto,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="write rows here")] = None,
) -> int:
    """Measure bandwidths, as nccl-tests prints them.

    Those of the solution, of the reference and of the backend.
    """
    if (code := workers.adopt()) is not None:
        return code
    folder = solution_folder(solution)
    workers.start(())
    try:
        from grader.checks.settings import resolve_device
        from grader.report.bench import parse_sizes, run_bench

        return run_bench(
            what or (),
            folder,
            solution,
            ranks=ranks,
            sizes=parse_sizes(sizes),
            device=resolve_device(device.value),
            json_file=json,
            out=sys.stdout,
        )
    finally:
        workers.stop()


@app.command()
def topo(
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="write it here, too")] = None,
    no_measure: Annotated[bool, typer.Option("--no-measure", help="time no links")] = False,
    solution: Annotated[
        str | None, typer.Option(help="let this folder's parse_topology read nvidia-smi's text")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="that text, instead of nvidia-smi's")
    ] = None,
) -> int:
    """What this machine is made of, and how fast its links are."""
    from grader.report.topo import show_topology

    return show_topology(
        sys.stdout,
        json_file=json,
        measured=not no_measure,
        solution=solution,
        text_file=text,
    )


@app.command()
def status(
    solution: Solution = "assignments",
    lang: Language = None,
) -> int:
    """List the tasks, their last results, and what to do next."""
    from rich.console import Console

    from grader.report.history import load
    from grader.report.status import print_status

    try:
        folder = solution_folder(solution)
    except CannotRun:
        folder = None
    entries = load(project_folder(), solution)
    print_status(Console(), entries, solution, folder, language_of(lang))
    return 0


@app.command()
def release(
    dest: Annotated[Path | None, typer.Argument(help="an empty or new folder")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="is assignments/ what reference/ makes? 1 if not")
    ] = False,
    assignments: Annotated[
        bool, typer.Option("--assignments", help="make assignments/ from reference/")
    ] = False,
) -> int:
    """Write a repository for students to DEST, without solutions."""
    from grader.release import differences, write_assignments, write_release

    if (dest is not None) + check + assignments != 1:
        raise CannotRun("release: name one of DEST, --check and --assignments")
    root = project_folder()
    if check:
        lines = differences(root / "reference", root / "assignments")
        for line in lines:
            print(line)
        return 1 if lines else 0
    if assignments:
        write_assignments(root / "reference", root / "assignments")
    elif dest is not None:
        write_release(root, dest)
    return 0


app.command()(batch)
app.command()(draw)
app.command()(hint)
app.add_typer(notebooks, name="notebook")
app.command()(plan)
app.command()(submit)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="print the kit's version")] = False,
) -> None:
    if version:
        print(f"tinyparallel {__version__}")
        raise typer.Exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status. One line on stderr when it cannot be run."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = given[: given.index("--")] if "--" in given else given
    _options_after[:] = given[len(own) + 1 :]
    _given[:] = own
    if not own:
        own = ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a mark or Chinese gets a "?", never a traceback.
        sys.stdout.reconfigure(errors="replace")
    try:
        if _options_after and own[0] not in ("check", "sim"):
            raise CannotRun("only `grader check` and `grader sim` take options after --")
        command = typer.main.get_command(app)
        speak(command, _spoken())
        return int(command.main(own, prog_name="grader", standalone_mode=False) or 0)
    except BrokenPipeError:
        # Whoever read our output (`head`) has gone: let the interpreter's last flush go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_CARRIED_OUT
    except (CannotRun, tasks.UnknownTask) as error:
        return _refuse(str(error))
    except OSError as error:
        if error.filename is None or not error.strerror:
            return _refuse(str(error))
        return _refuse(f"cannot open {error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        return _refuse("interrupted")
    except Exception as error:
        # Usage errors: typer's own class or click's, by its version; both format themselves.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # `grader notebook`: its message is a page
            print(format_message())
            return NOT_CARRIED_OUT
        return _refuse(str(format_message()))


def _spoken() -> str:
    """The language of a refusal: --lang may be what could not be read, so it is only looked for."""
    arguments = [argument.removeprefix("--lang=") for argument in _given]
    return language_of("zh" if "zh" in arguments else "en" if "en" in arguments else None)


def _refuse(message: str) -> int:
    _say(f"grader: {translated(_spoken(), ' '.join(message.split()))}")
    return NOT_CARRIED_OUT


def _say(line: str) -> None:
    print(line, file=sys.stderr)
