"""Long repetitions of kernel builds: run by `make soak`."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernels import cache, native
from kernels.build import Source, build_cpu
from kernels.compilers import NoCompiler
from kernels.contracts import REDUCE_ADD

ROOT = Path(__file__).resolve().parents[2]
PROTOTYPES = [contract.prototype for contract in REDUCE_ADD]
BUILD = """
import sys
from pathlib import Path
from kernels import build
source = build.Source.read(Path(sys.argv[1]), sys.argv[2:])
print("begin", flush=True)
build.build_cpu(source, checked=True)
"""
pytestmark = pytest.mark.soak


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the reference's reduce_add, and a cache of its own."""
    try:
        made = native.folder()
    except NoCompiler as problem:
        pytest.skip(str(problem))
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "cache"))
    shutil.copytree(made, tmp_path / "cache" / made.name)
    copy = tmp_path / "a2_ring_all_reduce" / "kernels.cu"
    copy.parent.mkdir()
    shutil.copy(ROOT / "reference" / "a2_ring_all_reduce" / "kernels.cu", copy)
    return copy


def _start(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(path), *PROTOTYPES],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begin\n"
    return process


def test_kill_9_at_twenty_moments_never_breaks_the_next_build(path: Path) -> None:
    text = path.read_text()
    begin = time.monotonic()
    assert _start(path).wait() == 0
    whole = time.monotonic() - begin
    killed = 0
    for i in range(20):
        path.write_text(f"{text}// {i}\n")
        process = _start(path)
        time.sleep(random.Random(i).uniform(0.0, whole))
        os.killpg(process.pid, signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        assert build_cpu(Source.read(path, PROTOTYPES), checked=True).path.is_file()
    assert killed >= 10
    # What the killed ones left is swept once it is a minute old.
    for debris in cache.cache_folder().glob("building-*"):
        os.utime(debris, (0, 0))
    path.write_text(f"{text}// last\n")
    build_cpu(Source.read(path, PROTOTYPES), checked=True)
    assert not list(cache.cache_folder().glob("building-*"))


def test_ten_builds_at_once(path: Path) -> None:
    processes = [_start(path) for _ in range(10)]
    assert [process.wait() for process in processes] == [0] * 10
    assert len(list(cache.cache_folder().glob("cpu-*"))) == 1


def test_read_only_checkout(path: Path, tmp_path: Path) -> None:
    """In a mount namespace of its own, where nothing of the checkout can be written."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    read_only = f"mount --bind '{ROOT}' '{ROOT}' && mount -o remount,bind,ro '{ROOT}'"
    probe = subprocess.run([*unshare, read_only], capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"a read-only mount cannot be made here: {probe.stderr.strip()}")
    out = tmp_path / "out.json"
    script = (
        f"{read_only} && cd '{ROOT}' && ! touch here 2>/dev/null && "
        f"'{sys.executable}' -m grader check a2.reduce_add --solution reference --no-throughput "
        f"--json '{out}'"
    )
    run = subprocess.run([*unshare, script], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    results = json.loads(out.read_text(encoding="utf-8"))
    assert results["points"] == results["max_points"] > 0


def test_endless_kernel_earns_nothing_and_ends_with_its_limit(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    body = "    // BEGIN SOLUTION\n"
    assert body in text
    head, _, rest = text.rpartition(body)
    path.write_text(
        f"{head}{body}    while (*(volatile int64_t*)&n > 0) {{}}\n{rest}", encoding="utf-8"
    )
    (tmp_path / "a1_collectives").mkdir()
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "grader", "check", "a2.reduce_add", "--no-throughput"]
    options = ["--solution", str(tmp_path), "--json", str(out)]
    run = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout + run.stderr
    results = json.loads(out.read_text(encoding="utf-8"))
    (task,) = results["tasks"]
    assert task["points"] == 0
    told = [check for check in task["checks"] if check["status"] == "timeout"]
    assert told, task["checks"]
    assert all("did not end" in check["message"] for check in told)
    assert "a loop that never ends" in json.dumps(told[0])
