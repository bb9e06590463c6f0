"""The reference reads what `nvidia-smi topo -m` prints: fixtures, and generated texts.

A fixture `NAME.txt` has its truth in `NAME.json`; one called `bad_line_N_…` must be refused with
line N. Both were written from descriptions of machines, not by the parser.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.checks import a0_topologies as topologies
from reference.a0_interconnect.given import Topology
from reference.a0_interconnect.topology import parse_topology

FIXTURES = Path(__file__).parent / "fixtures"
GOOD = sorted(path.stem for path in FIXTURES.glob("*.json"))
BAD = sorted(path.stem for path in FIXTURES.glob("bad_*.txt"))


def plain(found: Topology) -> dict[str, Any]:
    return {
        "gpus": list(found.gpus),
        "nics": list(found.nics),
        "links": sorted([a, b, kind] for (a, b), kind in found.links.items()),
        "cpu_affinity": {gpu: list(cores) for gpu, cores in found.cpu_affinity.items()},
        "numa_affinity": {gpu: list(nodes) for gpu, nodes in found.numa_affinity.items()},
        "nic_names": dict(found.nic_names),
    }


def expected_of(wanted: topologies.Expected) -> dict[str, Any]:
    told = topologies.as_arguments(wanted)
    optional = [[a, b, kind] for (a, b), kind in wanted.optional.items()]
    return told | {"links": sorted(told["links"] + optional)}


def text_of(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_bytes().decode()


def test_there_are_at_least_twelve_fixtures_of_either_fate() -> None:
    assert len(GOOD) >= 12
    assert len(BAD) >= 6


@pytest.mark.parametrize("name", GOOD)
def test_a_fixture_is_read(name: str) -> None:
    wanted = json.loads((FIXTURES / f"{name}.json").read_text())
    found = plain(parse_topology(text_of(name)))
    # Two cards without rows tell nothing of each other; a card is X to itself all the same.
    told = {(a, b) for a, b, _ in wanted["links"]}
    found["links"] = [link for link in found["links"] if (link[0], link[1]) in told]
    assert found == wanted


@pytest.mark.parametrize("name", BAD)
def test_a_bad_text_is_refused_with_its_line(name: str) -> None:
    line = name.split("_")[2]
    with pytest.raises(ValueError, match=rf"^line {line}: "):
        parse_topology(text_of(name))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_any_machine_in_any_mess_is_read(seed: int) -> None:
    rng = random.Random(seed)
    machine = topologies.random_machine(rng)
    style = topologies.random_style(rng, machine)
    if rng.random() < 0.25:
        width = rng.choice([50, 64, 80, 100])
        style = replace(style, wrap=0, hard_wrap=width, glue=(), underline=False)
    text = topologies.render(machine, style)
    assert plain(parse_topology(text)) == expected_of(topologies.expected(machine, style)), text


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_a_text_cut_anywhere_is_refused_or_whole(seed: int) -> None:
    """Cut inside the last number of the last GPU's row, nobody can tell; elsewhere it must show."""
    rng = random.Random(seed)
    machine = topologies.random_machine(rng)
    style = replace(topologies.random_style(rng, machine), wrap=0, glue=(), loose_lists=False)
    text = topologies.render(machine, style)
    wanted = topologies.expected(machine, style)
    for length in range(0, len(text), 3):
        try:
            found = parse_topology(text[:length])
        except ValueError as error:
            assert re.match(r"line \d+: ", str(error))
            continue
        own = {pair: kind for pair, kind in wanted.links.items() if pair[0].startswith("GPU")}
        assert {pair: found.links.get(pair) for pair in own} == own
        for gpu in wanted.gpus[:-1]:
            assert list(found.cpu_affinity[gpu]) == wanted.cpu_affinity[gpu]
            assert list(found.numa_affinity[gpu]) == wanted.numa_affinity[gpu]
