"""Clusters described in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grader.fabric import cluster_file
from grader.fabric.cluster import LinkSpec
from grader.fabric.presets import one_card, preset


def test_a_cluster_file_can_hold_a_tree_and_a_network(tmp_path: Path) -> None:
    described = cluster_file.__doc__ or ""
    file = tmp_path / "own.toml"
    begin, end = described.index("name ="), described.index("Or a preset")
    file.write_text(described[begin:end], encoding="utf-8")
    cluster = cluster_file.read_cluster(file)
    assert cluster.tree is not None and cluster.network is not None
    assert (cluster.name, cluster.devices, cluster.nics) == ("two old nodes", 16, 1)
    assert (cluster.tree.switches, cluster.tree.memory) == (2, LinkSpec(2e-5, 80e9))
    assert (cluster.network.core, cluster.network.rails) == (LinkSpec(5e-7, 12.5e9), False)
    file.write_text('preset = "dgx-h100"\nnodes = 4\nnics_per_node = 1\n', encoding="utf-8")
    same = replace(one_card(preset("dgx-h100*4")), name="own")
    assert cluster_file.read_cluster(file) == same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tree]\nnuma = 2", "unknown key 'tree.numa'"),
        ("[network]\nspines = 2.5", r"network\.spines must be a whole number"),
        ('[network]\nrails = "yes"', r"network\.rails must be true or false"),
        ("[network]\nuplink = 5", r"\[network\.uplink\] must hold exactly"),
        ('[inter]\nlatency = "fast"\nbandwidth = 1', r"inter\.latency must be a number"),
        ("tree = 3", r"\[tree\] must be a table"),
        ("flops = true", "flops must be a number, got True"),
        ('adding_bandwidth = "x"', "adding_bandwidth must be a number, got 'x'"),
        ("inter = { latency = -1, bandwidth = 1 }", r"inter\.latency must be finite seconds"),
        ("[tree]\nnuma_nodes = 4", r"'tree\.uplink' is missing"),
        ("preset = [1]", r"preset must be text, got \[1\]"),
        ('preset = "dgx-z"', "unknown cluster 'dgx-z'"),
        ('preset = "dgx-h100"\nnics_per_node = 9', "nics_per_node must be 1 … 8"),
    ],
)
def test_cluster_files_name_the_key_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "wrong.toml"
    whole = "devices_per_node = 4\nintra = { latency = 0, bandwidth = 1e9 }\n"
    file.write_text(text if text.startswith("preset") else whole + text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        cluster_file.read_cluster(file)
    assert str(file) in str(caught.value)
