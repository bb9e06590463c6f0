"""`grader check --report DIR`: a page that needs no network, with what the run showed.

Everything is in `index.html`; beside it lie the traces for Perfetto, the pictures as SVG files, and
the results as JSON and Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from grader import __version__, tasks
from grader.checks.benches import Row
from grader.checks.results import Results, TaskResult
from grader.fabric.chrome import write_chrome_trace
from grader.fabric.picture import draw, seconds_text
from grader.report import charts
from grader.report.files import write_atomically
from grader.report.language import text, translated
from grader.report.terminal import MARKS, percent, total_lines
from grader.report.traces import LATENCY, Drawn

TEMPLATE = "run_page.html"
#: Metrics of checks that belong together: what came, what was allowed.
PAIRS = (
    ("bytes_per_rank", "allowed_bytes_per_rank"),
    ("bytes_sent_by_all", "allowed_bytes"),
)
_HIDDEN = {"warnings", "worlds", "real_worlds", "floor", "full", "baseline", "launches"}
_MOST_RANKS = 16
_LEGEND = ("computes", "waits", "sends", "receives", "collective")


@dataclass
class Extras:
    """What stands beside the results, by task id: traces, schedules as SVG, bandwidths."""

    drawn: Mapping[str, Drawn] = field(default_factory=dict)
    schedules: Mapping[str, str] = field(default_factory=dict)
    bandwidths: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def write_page(folder: Path, results: Results, extras: Extras, language: str) -> Path:
    """Write `index.html` and its files into `folder`; returns its path. Raises OSError."""
    (folder / "traces").mkdir(parents=True, exist_ok=True)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(TEMPLATE).render(
        language="zh-CN" if language == "zh" else "en",
        word=lambda key, **values: text(language, key, **values),
        say=lambda message: translated(language, message),
        marks=MARKS,
        version=__version__,
        results=results,
        totals=total_lines(results, language),
        percent=percent(results.points, results.max_points) if results.max_points else "0",
        sections=[_section(folder, task, extras, language) for task in results.tasks],
        assignments=_assignments(results),
    )
    path = folder / "index.html"
    write_atomically(path, page)
    return path


def _assignments(results: Results) -> list[dict[str, Any]]:
    titles = {each.name: each.title for each in tasks.COURSE}
    names = dict.fromkeys(task.assignment for task in results.tasks)
    return [
        {
            "name": name,
            "title": titles.get(name, ""),
            "tasks": [task for task in results.tasks if task.assignment == name],
        }
        for name in names
    ]


def _section(folder: Path, task: TaskResult, extras: Extras, language: str) -> dict[str, Any]:
    section: dict[str, Any] = {
        "task": task,
        "metrics": _metrics(task),
        "bars": _bars(task),
        "speeds": [check.metrics for check in task.checks if _is_number(check.metrics, "ratio")],
        "trace": None,
        "schedule": None,
        "curve": None,
    }
    if (drawn := extras.drawn.get(task.task)) is not None:
        section["trace"] = _trace(folder, drawn, language)
    if (svg := extras.schedules.get(task.task)) is not None:
        name = f"traces/{task.task}.schedule.svg"
        write_atomically(folder / name, svg)
        section["schedule"] = {"svg": Markup(svg), "file": name}
    if rows := extras.bandwidths.get(task.task):
        section["curve"] = Markup(_curve(rows, language))
    return section


def _trace(folder: Path, drawn: Drawn, language: str) -> dict[str, Any]:
    timed = drawn.timed
    timeline = timed.timeline
    svg = draw(timeline, title=drawn.task)
    for word in _LEGEND:
        svg = svg.replace(f">{word}</text>", f">{translated(language, word)}</text>")
    names = {suffix: f"traces/{drawn.task}.{suffix}" for suffix in ("svg", "json")}
    write_atomically(folder / names["svg"], svg)
    write_chrome_trace(timeline, folder / names["json"])
    return {
        "svg": Markup(svg),
        "files": names,
        "failed": drawn.failed,
        "ranks": timed.record.world_size,
        "latency": seconds_text(LATENCY),
        "bandwidth": f"{timeline.cluster.intra.bandwidth / 1e6:.3g} MB/s",
        "makespan": seconds_text(timed.makespan),
        "rounds": timed.rounds,
        "messages": sum(timed.messages_sent),
        "total": charts.bytes_text(timed.total_bytes),
        "rows": [
            (
                rank,
                charts.bytes_text(timed.bytes_sent[rank]),
                charts.bytes_text(timed.bytes_received[rank]),
                timed.messages_sent[rank],
                seconds_text(timeline.computing(rank)),
                seconds_text(timed.idle(rank)),
            )
            for rank in range(min(timed.record.world_size, _MOST_RANKS))
        ],
    }


def _bars(task: TaskResult) -> list[dict[str, Any]]:
    """Bytes that were sent beside bytes that were allowed, as bars of one scale."""
    bars = []
    for check in task.checks:
        for got_key, allowed_key in PAIRS:
            if not (_is_number(check.metrics, got_key) and _is_number(check.metrics, allowed_key)):
                continue
            got, allowed = check.metrics[got_key], check.metrics[allowed_key]
            if allowed <= 0:
                continue
            most = max(got, allowed)
            bars.append(
                {
                    "check": check.check,
                    "got": charts.bytes_text(got),
                    "allowed": charts.bytes_text(allowed),
                    "got_share": 100 * got / most,
                    "allowed_share": 100 * allowed / most,
                    "ratio": f"{got / allowed:.3g}",
                    "over": got > allowed,
                }
            )
    return bars


def _is_number(metrics: Mapping[str, Any], key: str) -> bool:
    return isinstance(metrics.get(key), (int, float))


def _metrics(task: TaskResult) -> list[tuple[str, str]]:
    """Numbers of the checks that no chart shows, for the curious."""
    shown = {key for pair in PAIRS for key in pair} | _HIDDEN
    found: dict[str, str] = {}
    for check in task.checks:
        if "ratio" in check.metrics:
            continue
        for key, value in check.metrics.items():
            if key not in shown and isinstance(value, (int, float, str)):
                number = f"{value:.6g}" if isinstance(value, float) else str(value)
                found.setdefault(str(key).replace("_", " "), number)
    return list(found.items())[:24]


def _curve(rows: Sequence[Row], language: str) -> str:
    series: dict[str, list[charts.Point]] = {}
    for row in rows:
        if row.busbw is not None:
            series.setdefault(row.who, []).append((float(row.nbytes), row.busbw / 1e9))
    return charts.curves(series, text(language, "whole_vector"), text(language, "busbw"))
