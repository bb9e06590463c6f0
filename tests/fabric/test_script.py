"""`grader sim`: any torch.distributed script, unchanged, on simulated ranks."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from grader.fabric import SimulationResult
from grader.fabric.cluster import LinkSpec, two_level, uniform
from grader.fabric.cluster_file import read_cluster
from grader.fabric.script import ScriptError, run_script
from grader.fabric.trace import Trace
from grader.report.simulation import cluster_of, simulate_script

SCRIPTS = Path(__file__).parents[1] / "scripts"


def test_torchs_ddp_trains_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_script(SCRIPTS / "train_ddp.py", 8, ["--steps", "3"])
    assert not result.findings, result.findings[0].message
    lines = [line for line in capsys.readouterr().out.splitlines() if "loss" in line]
    assert [line.split(":")[0] for line in lines] == [
        f"[rank 0] step {step} of 8 ranks" for step in range(3)
    ]
    losses = [float(line.rsplit(" ", 1)[1]) for line in lines]
    assert losses[0] > losses[-1]
    kinds = Trace(result.record).collectives[3]
    assert kinds["all_reduce"] == 2 * 3  # one bucket, and the mean loss, of each step


def test_a_script_for_nccl_runs_and_sees_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_script(SCRIPTS / "nccl_guarded.py", 8, devices_per_node=4)
    assert not result.findings, result.findings[0].message
    printed = sorted(capsys.readouterr().out.splitlines())
    assert printed == ["[rank 0] node 0: backend sim", "[rank 4] node 1: backend sim"]


def test_modules_beside_the_script_belong_to_each_rank(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = run_script(SCRIPTS / "parameter_averaging.py", 4, ["--steps", "6"])
    assert not result.findings, result.findings[0].message
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(line.endswith("3 averagings") for line in lines)
    assert "averaging" not in sys.modules
    assert sys.modules["__main__"].__name__ == "__main__"


def test_the_report_names_the_fault_and_the_line() -> None:
    out = io.StringIO()
    status = simulate_script(SCRIPTS / "hangs.py", 4, cluster_of("uniform", 4), [], out=out)
    assert status == 1
    assert "error: deadlock: rank 0 → rank 1 → rank 2 → rank 3 → rank 0" in out.getvalue()
    assert "hangs.py:8" in out.getvalue()


def test_the_report_is_chinese_where_it_is_asked_for() -> None:
    out = io.StringIO()
    simulate_script(
        SCRIPTS / "hangs.py", 4, cluster_of("uniform", 4), [], out=out, language="zh"
    )  # fmt: skip
    text = out.getvalue()
    assert "错误：死锁：rank 0 → rank 1 → rank 2 → rank 3 → rank 0 互相等待。" in text
    assert "uniform 上的 4 个 rank" in text and "接收" in text and "hangs.py:8" in text
    assert "deadlock" not in text and "waits" not in text and "received" not in text


def test_the_report_and_the_trace_file(tmp_path: Path) -> None:
    out = io.StringIO()
    cluster = two_level(2, 4, LinkSpec(3e-6, 300e9), LinkSpec(5e-6, 25e9), nics_per_node=1)
    trace, picture = tmp_path / "trace.json", tmp_path / "trace.svg"
    status = simulate_script(
        SCRIPTS / "parameter_averaging.py",
        8,
        cluster,
        ["--steps", "2"],
        trace_file=trace,
        picture_file=picture,
        out=out,
    )
    assert status == 0
    text = out.getvalue()
    assert "8 ranks on two-level:" in text and "of virtual time" in text
    assert "7 rounds" not in text and "14 rounds" in text  # two tensors, 7 steps each
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == set(range(8))
    assert {"X", "M", "s", "f"} <= {event["ph"] for event in events}
    assert picture.read_text().startswith("<svg")


def test_bad_scripts_get_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"cannot read .*nowhere\.py: No such file"):
        run_script(tmp_path / "nowhere.py", 2)
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(ScriptError, match=r"broken\.py does not compile: .*line 1"):
        run_script(broken, 2)


def test_sys_exit_zero_is_a_clean_end_and_one_is_not(tmp_path: Path) -> None:
    script = tmp_path / "leaves.py"
    script.write_text("import sys\nsys.exit(int(sys.argv[1]))\n")
    assert not run_script(script, 2, ["0"]).findings
    assert "sys.exit(1)" in run_script(script, 2, ["1"]).findings[0].message


def test_a_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(
        "nodes = 2\ndevices_per_node = 4\nnics_per_node = 1\n"
        "[intra]\nlatency = 3e-6\nbandwidth = 25e9\n[inter]\nlatency = 6e-6\nbandwidth = 12.5e9\n"
    )
    cluster = read_cluster(file)
    assert (cluster.name, cluster.devices, cluster.nics) == ("lab", 8, 1)
    assert cluster.inter.bandwidth == 12.5e9
    with pytest.raises(ValueError, match="too few for 16 ranks"):
        cluster_of(str(file), 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = 2", "'devices_per_node' is missing"),
        ("speed = 1", "unknown key 'speed'"),
        ("devices_per_node = 4\nintra = 3", r"\[intra\] must hold exactly"),
        ("devices_per_node = 4\n[intra]\nlatency = -1\nbandwidth = 1", "latency must be finite"),
        ("devices_per_node = 1.5\n[intra]\nlatency = 1\nbandwidth = 1", "must be a whole number"),
        ("devices_per_node = [", "lab.toml"),
    ],
)
def test_cluster_files_that_describe_none(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_cluster(file)


def test_torchs_ddp_is_seen_to_overlap() -> None:
    """Its native code waits on futures; the record has the wait where the result is used."""
    result = run_script(SCRIPTS / "deep_ddp.py", 4)
    assert not result.findings, result.findings[0].message
    slow = uniform(4, latency=5e-6, bandwidth=50e9, flops=1e12, memory_bandwidth=1e12)
    timed = Trace(result.record).on(slow)
    assert timed.timeline.complete
    communicating = timed.timeline.communicating(0)
    assert timed.overlap(0) > 0.4 * communicating
    assert timed.makespan < timed.timeline.computing(0) + communicating


def run_text(tmp_path: Path, text: str, ranks: int = 2) -> SimulationResult:
    script = tmp_path / "script.py"
    script.write_text(text)
    return run_script(script, ranks, time_limit=5.0)


def test_a_mesh_may_be_what_initialises(tmp_path: Path) -> None:
    result = run_text(
        tmp_path,
        "import torch\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.tensor import Replicate, Shard, distribute_tensor\n"
        "mesh = init_device_mesh('cpu', (2, 2), mesh_dim_names=('dp', 'tp'))\n"
        "whole = torch.arange(16.0).view(4, 4)\n"
        "part = distribute_tensor(whole, mesh['tp'], [Shard(0)])\n"
        "assert part.to_local().shape == (2, 4)\n"
        "assert torch.equal(part.redistribute(mesh['tp'], [Replicate()]).to_local(), whole)\n",
        4,
    )
    assert not result.findings, result.findings[0].message


def test_spawning_processes_is_refused_with_advice(tmp_path: Path) -> None:
    result = run_text(
        tmp_path,
        "import torch.multiprocessing as mp\n"
        "def worker(rank):\n    pass\n"
        "mp.spawn(worker, nprocs=4)\n",
    )
    assert "a simulated rank cannot spawn processes" in result.findings[0].message
    assert "as under torchrun" in result.findings[0].message


def test_a_store_that_a_script_makes_is_the_ranks_own(tmp_path: Path) -> None:
    result = run_text(
        tmp_path,
        "import os, torch, torch.distributed as dist\n"
        "rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "store = dist.TCPStore('127.0.0.1', 29511, size, rank == 0)\n"
        "store.set(f'rank{rank}', str(rank))\n"
        "assert store.get(f'rank{1 - rank}') == str(1 - rank).encode()\n"
        "dist.init_process_group('gloo', store=store, rank=rank, world_size=size)\n"
        "dist.barrier()\n",
    )
    assert not result.findings, result.findings[0].message


def test_ranks_see_what_torchrun_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, torch.distributed as dist\n"
        "assert dist.is_torchelastic_launched()\n"
        "names = ('RANK', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'GROUP_RANK', 'GROUP_WORLD_SIZE')\n"
        "print(*(os.environ[name] for name in names))\n"
    )
    assert not run_script(script, 10, devices_per_node=8).findings
    lines = capsys.readouterr().out.splitlines()
    assert "[rank 0] 0 0 8 0 2" in lines and "[rank 9] 9 1 2 1 2" in lines


def test_a_script_without_distributed_is_noted(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('hello')\n")
    out = io.StringIO()
    assert simulate_script(script, 2, cluster_of("uniform", 2), [], out=out) == 0
    assert "no rank initialised torch.distributed" in out.getvalue()
