"""`grader check --report DIR`: the page, in a real browser where there is one."""

from __future__ import annotations

import html.parser
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader.checks.benches import Row
from grader.checks.results import CheckResult, Results, TaskResult
from grader.report import charts
from grader.report.run_page import Extras, write_page

from . import browser
from .answers import ROOT

needs_chromium = pytest.mark.skipif(browser.CHROMIUM is None, reason=browser.WHY_NOT)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a real run leaves: a ring, a schedule and a kernel."""
    folder = tmp_path_factory.mktemp("report")
    what = ["a2.ring_all_gather", "a6.gpipe_schedule", "a2.reduce_add"]
    run = subprocess.run(
        [sys.executable, "-m", "grader", "check", *what, "--solution", "reference",
         "--no-throughput", "--report", str(folder), "--lang", "en"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert run.returncode in (0, 1), run.stderr
    assert str(folder / "index.html") in run.stderr
    return folder


def busy_results() -> tuple[Results, Extras]:
    """A page with everything on it: failures with very long lines, warnings, speeds, a curve."""
    results = Results("/a/very/long/" + "path/" * 30 + "work", "cpu", 3, 41.2)
    failing = CheckResult("sends no more than a ring must", 4.0, "failed", 0.0)
    failing.message = "rank 2 sent 96 bytes <script>alert(1)</script> " + "x" * 400
    failing.cause = "whole vectors travel where chunks would do"
    failing.metrics = {
        "bytes_per_rank": 96, "allowed_bytes_per_rank": 48, "rounds": 6,
        "warnings": ["on NCCL this hangs\nrank 0"],
    }  # fmt: skip
    fast = CheckResult("keeps up with the library's all-reduce", 6.0, "passed", 6.0, "")
    fast.metrics = {"ratio": 0.9, "floor": 0.45, "full": 0.7, "baseline": "gloo's all-reduce"}
    results.tasks = [TaskResult("a2.ring_all_reduce", "a2_ring_all_reduce", [failing, fast])]
    rows = [
        Row("a2.ring_all_reduce", who, 4, size, size // 4, "float", "sum", 1e-3, None, 1e9,
            scale * size**0.5 * 1e5, 0, 5)
        for who, scale in (("student", 1.0), ("gloo", 1.02))
        for size in (1 << 16, 1 << 20, 1 << 24)
    ]  # fmt: skip
    return results, Extras(bandwidths={"a2.ring_all_reduce": rows})


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results, extras = busy_results()
    folder = tmp_path_factory.mktemp("busy")
    for name in ("results.json", "report.md"):
        (folder / name).write_text("")
    write_page(folder, results, extras, "zh")
    return folder


class _Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [v for k, v in attributes if k in ("href", "src", "srcset", "data") and v]


def links(page: Path) -> list[str]:
    parser = _Links()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


def test_the_page_shows_traces_and_schedules_of_the_student(report: Path) -> None:
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "your schedule" in page and "ranks over virtual time" in page
    assert page.count("shadowrootmode") == 2
    trace = json.loads((report / "traces" / "a2.ring_all_gather.json").read_text())
    assert any(event.get("cat") == "send" for event in trace["traceEvents"])
    assert "<svg" in (report / "traces" / "a6.gpipe_schedule.schedule.svg").read_text()
    # 4 ranks send 3 chunks each: the bar says that this is what is allowed.
    assert "1 ×" in page
    assert not (report / "traces" / "a2.reduce_add.svg").exists()


def test_the_page_needs_no_network_and_no_script(report: Path, busy: Path) -> None:
    for folder in (report, busy):
        page = folder / "index.html"
        assert "<script" not in page.read_text(encoding="utf-8")
        for link in links(page):
            assert link == "data:," or link.startswith("#") or (folder / link).is_file(), link


def test_messages_of_the_solution_are_text(busy: Path) -> None:
    page = (busy / "index.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in page
    assert 'lang="zh-CN"' in page and "达到" in page


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_shows_it_at_laptop_width(report: Path, busy: Path, dark: bool) -> None:
    for folder, pictures, curves in ((report, 2, 0), (busy, 0, 1)):
        found, console = browser.probe(folder / "index.html", dark)
        assert console == []
        assert found["inner"] == 1280 and found["scroll"] <= 1280, found
        assert found["wide"] == []
        assert len(found["pictures"]) == pictures and all(w > 900 for w in found["pictures"])
        assert len(found["charts"]) == curves and all(w > 300 for w in found["charts"])
        assert all(name.startswith("data:") for name in found["requests"]), found["requests"]
        back, ink = (sum(map(int, c[4:-1].split(","))) for c in (found["background"], found["ink"]))
        assert (back < ink) == dark and abs(back - ink) > 450
        image = browser.screenshot(folder / "index.html", folder / f"shot-{dark}.png", dark)
        assert image.startswith(b"\x89PNG") and len(image) > 20_000


@needs_chromium
def test_the_probe_sees_what_is_too_wide_and_what_goes_wrong(tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text(
        "<html><head></head><body><div style='width: 3000px'>x</div>"
        "<script>console.error('broken')</script></body></html>"
    )
    found, console = browser.probe(page)
    assert found["wide"] and found["scroll"] > 1280 and "broken" in console[0]


def test_labels_of_curves_that_end_together_are_moved_apart() -> None:
    svg = charts.curves(
        {"a": [(1024, 1.0), (4096, 2.0)], "b": [(1024, 1.0), (4096, 2.01)]}, "x", "y"
    )
    heights = [float(part.split('y="')[1].split('"')[0]) for part in svg.split('class="name')[1:]]
    assert len(heights) == 2 and abs(heights[0] - heights[1]) >= 14.9
    assert charts.curves({}, "x", "y") == ""
    assert charts.bytes_text(1 << 20) == "1 MiB"
