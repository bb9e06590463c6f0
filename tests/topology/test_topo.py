"""`grader topo`: machines made of files, this machine, and a solution's parser."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from grader.checks import workers
from grader.checks.settings import CannotRun
from grader.report import topo, topo_measure
from grader.report.topo_devices import Device, discover, nearness

FIXTURES = Path(__file__).parent / "fixtures"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def gpu(root: Path, place: str, numa: int) -> None:
    """A GPU at a place below /sys/devices, and where it is linked from."""
    folder = root / "sys/devices" / place
    write(
        folder,
        {
            "class": "0x030200\n", "vendor": "0x10de\n", "device": "0x2330\n",
            "numa_node": f"{numa}\n", "current_link_speed": "32.0 GT/s PCIe\n",
            "current_link_width": "16\n",
        },
    )  # fmt: skip
    listed = root / "sys/bus/pci/devices" / folder.name
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.symlink_to(folder)


def card(root: Path, name: str, place: str, numa: int) -> None:
    folder = root / "sys/devices" / place
    write(
        folder,
        {"numa_node": f"{numa}\n", f"infiniband/mlx5_{name}/ports/1/rate": "400 Gb/sec (4X NDR)\n"},
    )
    net = root / "sys/class/net" / name
    write(net, {"operstate": "up\n", "speed": "400000\n", "mtu": "4200\n"})
    (net / "device").symlink_to(folder)


def two_sockets(root: Path) -> None:
    for number, cpus in enumerate(("0-31,64-95", "32-63,96-127")):
        folder = f"sys/devices/system/node/node{number}"
        meminfo = f"Node {number} MemTotal:       {512 << 20} kB\n"
        write(root, {f"{folder}/cpulist": cpus, f"{folder}/meminfo": meminfo})
    write(root, {"proc/cpuinfo": "processor : 0\nmodel name\t: Test CPU 9000\n"})
    gpu(root, "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:18:00.0", 0)
    gpu(root, "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:19:00.0", 0)
    gpu(root, "pci0000:37/0000:37:01.0/0000:38:00.0", 0)
    gpu(root, "pci0000:97/0000:97:01.0/0000:98:00.0", 1)
    card(root, "ib0", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:03.0/0000:1a:00.0", 0)


def test_a_machine_of_files_is_found_with_its_links(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    machine = discover(tmp_path)
    assert machine.cpu == "Test CPU 9000"
    assert [(node.number, node.cpus) for node in machine.numa] == [
        (0, "0-31,64-95"),
        (1, "32-63,96-127"),
    ]
    assert machine.numa[0].memory_bytes == 512 << 30
    assert [(each.name, each.numa, each.link) for each in machine.devices] == [
        *((f"GPU{i}", i // 3, "32.0 GT/s x16") for i in range(4)),
        ("ib0", 0, ""),
    ]
    row = [machine.pairs["GPU0", other] for other in ("GPU1", "GPU2", "GPU3", "ib0")]
    assert row == ["PIX", "NODE", "SYS", "PIX"]
    assert machine.devices[-1].details == {
        "state": "up", "mtu": "4200", "speed": "400000 Mb/s",
        "mlx5_ib0 port 1": "400 Gb/sec (4X NDR)",
    }  # fmt: skip
    assert machine.notes == []
    json.dumps(machine.to_json())


def test_the_picture_shows_nodes_bridges_and_devices(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    lines = topo.picture(discover(tmp_path))
    assert lines[:4] == [
        "this machine",
        "├── NUMA node 0: CPUs 0-31,64-95, 512.0 GiB",
        "│   ├── pci0000:15",
        "│   │   └── 0000:15:01.0",
    ]
    assert lines[-4:] == [
        "└── NUMA node 1: CPUs 32-63,96-127, 512.0 GiB",
        "    └── pci0000:97",
        "        └── 0000:97:01.0",
        "            └── GPU3 (NVIDIA 0x2330)",
    ]


def test_nearness_follows_the_bus() -> None:
    def at(*bus: str) -> Device:
        return Device("x", "gpu", "", bus, 0)

    assert nearness(at("pci", "a", "b", "x"), at("pci", "a", "c", "y")) == "PIX"
    assert nearness(at("pci", "a", "b", "c", "x"), at("pci", "a", "d", "y")) == "PXB"
    assert nearness(at("pci", "a", "x"), at("pci", "b", "y")) == "PHB"
    assert nearness(at(), at("pci", "x")) == "?"


@pytest.mark.parametrize("files", [{}, {"proc/cpuinfo": "\xff:\n", "sys/class/net/eth0/mtu": "9"}])
def test_a_machine_that_tells_nothing_is_no_error(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    machine = discover(tmp_path)
    assert machine.devices == []
    assert machine.notes == ["no GPU here"]
    assert topo.picture(machine) == ["this machine"]


def test_a_damaged_file_becomes_a_note(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    write(tmp_path, {"sys/bus/pci/devices/0000:98:00.0/numa_node": "none\n"})
    machine = discover(tmp_path)
    assert any(note.startswith("GPUs: ValueError") for note in machine.notes)
    assert [each.name for each in machine.devices] == ["ib0"]


def test_this_machine_is_shown_and_written(tmp_path: Path) -> None:
    out = io.StringIO()
    assert topo.show_topology(out, json_file=tmp_path / "topo.json", measured=False) == 0
    document = json.loads((tmp_path / "topo.json").read_text())
    assert document["format"] == 1
    for device in document["machine"]["devices"]:
        assert device["name"] in out.getvalue()
    assert "logical CPUs" in out.getvalue()


def test_links_of_this_machine_are_measured() -> None:
    links = topo_measure.measure()
    assert links.memory_copy is not None and links.memory_copy > 0
    assert links.gloo_latency is not None and links.gloo_latency > 0
    matrix = links.matrices["gloo between processes"]
    assert len(matrix) == len(links.labels["gloo between processes"]) >= 2
    for i, row in enumerate(matrix):
        for j, rate in enumerate(row):
            assert (rate is None) if i == j else (rate is not None and rate > 0)


def test_a_world_that_cannot_be_measured_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topo_measure, "COPY_BYTES", 1 << 16)
    monkeypatch.setattr(topo_measure.sys, "executable", "/bin/false")
    links = topo_measure.measure()
    assert links.memory_copy is not None
    assert [note.split(":")[0] for note in links.notes] == ["gloo"]


def test_a_solutions_parser_reads_the_text_when_asked(tmp_path: Path) -> None:
    out = io.StringIO()
    try:
        file = FIXTURES / "dgx_a100_tabs.txt"
        written = tmp_path / "topo.json"
        status = topo.show_topology(
            out, measured=False, solution="reference", text_file=file, json_file=written
        )
        assert status == 0
        told = out.getvalue().split("a0.parse_topology of reference:\n")[1]
        lines = told.strip().splitlines()
        assert lines[0].split()[:2] == ["GPU0", "GPU1"]
        assert lines[1].split()[:3] == ["GPU0", "X", "NV12"]
        assert "48-63,176-191" in lines[1]
        assert len(lines) < 30
        parsed = json.loads(written.read_text())["parsed"]
        assert parsed["returned"]["gpus"] == [f"GPU{i}" for i in range(8)]
    finally:
        workers.stop()


def test_a_parser_that_raises_gives_status_1_and_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("no matrix")
    try:
        for solution, expected in (
            ("reference", "ValueError: line 1"),
            ("assignments", "a0.parse_topology is not"),
        ):
            out = io.StringIO()
            status = topo.show_topology(out, measured=False, solution=solution, text_file=bad)
            assert status == 1
            last = out.getvalue().rstrip().splitlines()[-1]
            assert last.startswith(f"a0.parse_topology of {solution}: {expected}")
    finally:
        workers.stop()


def test_what_a_parser_returns_is_shown_within_bounds() -> None:
    out = io.StringIO()
    names = [f"GPU{i}" + "x" * 10_000 for i in range(500)]
    empty: dict[str, list[int]] = {}
    parsed = {
        "gpus": names, "nics": [], "links": [[names[0], names[1], "NV1" * 10_000]],
        "cpu_affinity": {names[0]: list(range(0, 100_000, 2))}, "numa_affinity": empty,
        "nic_names": {},
    }  # fmt: skip
    assert not topo._print_parsed({"returned": parsed, "error": None}, "it", out)
    assert len(out.getvalue()) < 500_000
    assert "(and 436 more)" in out.getvalue()
    assert topo._print_parsed({"returned": [1], "error": None}, "it", out)
    assert "it: returned [1], expected a Topology" in out.getvalue()


def test_a_text_without_a_solution_is_an_error() -> None:
    with pytest.raises(CannotRun, match="--text needs --solution"):
        topo.show_topology(io.StringIO(), measured=False, text_file=FIXTURES / "none.txt")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo NVIDIA-SMI has failed; exit 9", "ended with status 9: NVIDIA-SMI has failed"),
        ("exit 3", "ended with status 3: it says nothing"),
        ("exec sleep 60", "did not end in 0.2 s"),
    ],
)
def test_an_nvidia_smi_that_fails_or_hangs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setattr(topo.shutil, "which", lambda name: str(command))
    assert topo.SMI_SECONDS == 10
    if "sleep" in script:
        monkeypatch.setattr(topo, "SMI_SECONDS", 0.2)
    with pytest.raises(CannotRun, match=message):
        topo.smi_text(None)


def test_what_nvidia_smi_prints_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\nhead -c 3000000 /dev/zero\n")
    command.chmod(0o755)
    monkeypatch.setattr(topo.shutil, "which", lambda name: str(command))
    assert len(topo.smi_text(None)) == topo.MOST_TEXT


def test_without_nvidia_smi_the_parser_needs_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topo.shutil, "which", lambda name: None)
    with pytest.raises(CannotRun, match="no nvidia-smi"):
        topo.smi_text(None)
