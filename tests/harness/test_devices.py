"""GPUs, cores and NUMA nodes of machines that we do not have, and which of them a rank gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grader.harness.binding import TooFewGpus, place_ranks, share
from grader.harness.devices import (
    Machine,
    NvmlError,
    cores_of,
    read_gpus,
    read_machine,
    visible,
)
from grader.harness.worlds_group import BACKEND
from grader.harness.worlds_rank import choose_backend
from tests.harness.machines import DGX, DGX_NUMA, Card, FakeNvml, write_sys


@pytest.fixture
def dgx(tmp_path: Path) -> Machine:
    gpus = read_gpus(FakeNvml(DGX), 111, write_sys(tmp_path, DGX, DGX_NUMA))
    numa = {node: cores_of(text) for node, text in DGX_NUMA.items()}
    return Machine(tuple(range(112)), tuple(gpus), numa)


def test_gpus_are_numbered_by_address_as_cuda_does(dgx: Machine) -> None:
    assert [gpu.uuid[-1] for gpu in dgx.gpus] == list("abcdefgh")
    assert [gpu.index for gpu in dgx.gpus] == list(range(8))
    assert dgx.gpus[0].bus_id == "0000:1b:00.0"
    assert [gpu.numa_node for gpu in dgx.gpus] == [0] * 4 + [1] * 4
    assert dgx.gpus[7].cores == frozenset(range(56, 112))


def test_nvml_is_closed_again_and_names_what_it_refused() -> None:
    library = FakeNvml(DGX, broken="nvmlDeviceGetUUID")
    with pytest.raises(NvmlError, match="nvmlDeviceGetUUID returned 999"):
        read_gpus(library, 111)
    assert library.open == 0


def test_each_rank_gets_its_gpu_and_an_even_share_of_the_cores_near_it(dgx: Machine) -> None:
    places = place_ranks(dgx, 8, "cuda")
    assert [place.device for place in places] == [f"cuda:{rank}" for rank in range(8)]
    assert places[0].cores == tuple(range(14))
    assert places[4].cores == tuple(range(56, 70))
    assert sorted(core for place in places for core in place.cores) == list(range(112))
    assert not any(place.shared for place in places)


def test_only_cores_that_we_may_use_are_given(dgx: Machine) -> None:
    allowed = Machine((4, 5, 60, 61), dgx.gpus, dgx.numa)
    places = place_ranks(allowed, 8, "cuda")
    assert {place.cores for place in places[:4]} == {(4,), (5,)}
    assert {place.cores for place in places[4:]} == {(60,), (61,)}


def test_cores_of_the_numa_node_where_nvml_knows_none(tmp_path: Path) -> None:
    cards = [Card(1, "GPU-x", 1, None), Card(2, "GPU-y", -1, None)]
    gpus = read_gpus(FakeNvml(cards), 7, write_sys(tmp_path, cards, {}))
    machine = Machine(tuple(range(8)), tuple(gpus), {0: cores_of("0-3"), 1: cores_of("4-7")})
    places = place_ranks(machine, 2, "cuda")
    assert places[0].cores == (4, 5, 6, 7)
    assert places[1].cores == tuple(range(8))  # no node is known: any core will do


def test_more_ranks_than_gpus_share_them_but_are_not_timed(dgx: Machine) -> None:
    two = Machine(dgx.cores, dgx.gpus[:2], dgx.numa)
    places = place_ranks(two, 4, "cuda")
    assert [place.device for place in places] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert all(place.shared for place in places)
    with pytest.raises(TooFewGpus, match="4 GPUs: 2"):
        place_ranks(two, 4, "cuda", timed=True)
    with pytest.raises(TooFewGpus, match="no GPU"):
        place_ranks(Machine((0,)), 1, "cuda")


def test_cores_are_shared_evenly_and_reused_where_there_are_too_few() -> None:
    assert share(range(8), 3) == [(0, 1), (2, 3, 4), (5, 6, 7)]
    assert share((0, 1), 4) == [(0,), (1,), (0,), (1,)]
    assert [place.cores for place in place_ranks(Machine((0, 1)), 2)] == [(0,), (1,)]


@pytest.mark.parametrize(
    ("setting", "letters"),
    [
        (None, "abcdefgh"),
        ("2,0", "ca"),
        ("GPU-d,GPU-a", "da"),
        ("", ""),
        ("-1", ""),
        ("1,9,2", "b"),  # the list ends at the first entry that is none
        ("1,1", "b"),
        ("GPU-", ""),  # names several
    ],
)
def test_visible_devices_as_cuda_reads_them(
    dgx: Machine, setting: str | None, letters: str
) -> None:
    seen = visible(dgx.gpus, setting)
    assert "".join(gpu.uuid[-1] for gpu in seen) == letters
    assert [gpu.index for gpu in seen] == list(range(len(letters)))


def test_a_machine_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,1")
    machine = read_machine(FakeNvml(DGX), write_sys(tmp_path, DGX, DGX_NUMA))
    assert [gpu.uuid for gpu in machine.gpus] == ["GPU-f", "GPU-b"]
    assert machine.numa == {0: frozenset(range(56)), 1: frozenset(range(56, 112))}
    assert machine.cores == tuple(sorted(os.sched_getaffinity(0)))


def test_core_lists_of_the_kernel() -> None:
    assert cores_of("0-3,8,10-11\n") == frozenset({0, 1, 2, 3, 8, 10, 11})
    assert cores_of("\n") == frozenset()


@pytest.mark.parametrize(
    ("device", "shared", "allow", "backend"),
    [
        ("cpu", False, None, "gloo"),
        ("cpu", False, "p2p", BACKEND),
        ("cuda:3", False, None, "nccl"),
        ("cuda:3", False, "p2p", "nccl"),
        ("cuda:0", True, None, BACKEND),  # NCCL refuses two ranks on one GPU
    ],
)
def test_backend_of_a_rank(device: str, shared: bool, allow: str | None, backend: str) -> None:
    assert choose_backend(device, shared, allow) == backend
