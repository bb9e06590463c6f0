"""Training on real processes: from torchrun, and when a rank is killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.capstone.ranks import ROOT, arguments, curve, start

TIMEOUT = 60.0  # that ranks wait for each other


def test_torchrun_trains_and_tells_how_it_goes() -> None:
    command = ["--nproc-per-node", "4", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *command,
         *arguments(dp=2, tp=2, sp=True, steps=20)],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    lines = run.stdout.splitlines()
    assert "dp 2, pp 1, tp 2 with sp; all layers are your own" in lines
    steps = [line for line in lines if line.startswith("step")]
    assert len(steps) == 20
    pattern = r"step +20/20  loss \d+\.\d{4}  norm \d+\.\d{3}  \d+ tokens/s  MFU \d+\.\d %"
    assert re.fullmatch(pattern, steps[-1])
    losses = [float(line.split()[3]) for line in steps]
    assert losses[-1] < losses[0] - 0.5


def test_a_killed_rank_ends_all_and_the_run_goes_on_at_another_layout(tmp_path: Path) -> None:
    options = {"pp": 2, "tp": 2, "checkpoint": str(tmp_path), "timeout": TIMEOUT}
    processes = start(4, arguments(**options, steps=100_000, save_every=3))
    try:
        deadline = time.monotonic() + 180
        while not list(tmp_path.glob("step-*")) and time.monotonic() < deadline:
            assert all(process.poll() is None for process in processes)
            time.sleep(0.05)
        processes[2].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        told = [process.communicate(timeout=TIMEOUT + 60) for process in processes]
        assert time.monotonic() - killed < TIMEOUT + 30
    finally:
        for process in processes:
            process.kill()
    assert processes[2].returncode == -signal.SIGKILL
    for rank in (0, 1, 3):
        errors = told[rank][1]
        assert processes[rank].returncode == 1, errors[-2000:]
        assert f"train: rank {rank} stopped in step" in errors
        assert "another rank has failed or no longer answers" in errors
        assert "--resume" in errors
        assert "Traceback" not in errors
    whole = [place for place in tmp_path.glob("step-*") if (place / ".metadata").is_file()]
    step = max(int(place.name.removeprefix("step-")) for place in whole)
    losses = curve(1, checkpoint=str(tmp_path), resume=True, steps=step + 4)
    assert losses == pytest.approx(curve(1, steps=step + 4)[step:], rel=1e-9)


def test_a_wrong_number_of_processes_is_told_with_both_numbers() -> None:
    (process,) = start(1, arguments(dp=2))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    told = "train: dp 2 × pp 1 × tp 1 = 2 ranks, but the world has 1 (train.py, line "
    assert told in errors and "Traceback" not in errors
