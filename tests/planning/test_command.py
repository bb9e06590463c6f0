"""`grader plan`: models by name and by file, and what it says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.cli import main

SMALL = """
layers = 8
hidden = 512
heads = 8
vocab = 32000
sequence = 1024
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["plan", *arguments, "--solution", "reference"])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_a_model_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(SMALL)
    status, out, _ = run(capsys, str(file), "--cluster", "dgx-h100", "--devices", "8", "--top", "3")
    assert status == 0
    assert out.startswith("mine (0.0B parameters) on 8 × dgx-h100, 1,048,576 tokens a step")
    for word in ("plans fit", "MFU", "bubble", "activations", "optimizer", "sent by a device"):
        assert word in out


@pytest.mark.parametrize(
    ("name", "cluster", "devices"),
    [
        ("gpt3-175b", "dgx-a100", "64"),
        ("llama3-405b", "dgx-h100", "128"),
        ("deepseek-v3", "h800-v3", "256"),
        ("megatron-1t", "gb200-nvl72", "144"),
    ],
)
def test_models_by_name(
    capsys: pytest.CaptureFixture[str], name: str, cluster: str, devices: str
) -> None:
    tokens = str(64 * 8192)
    status, out, err = run(
        capsys, name, "--cluster", cluster, "--devices", devices, "--batch-tokens", tokens
    )
    assert status == 0, err
    assert f"on {devices} × {cluster}" in out


def test_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "gpt3-175b", "--cluster", "dgx-a100", "--devices", "2")
    assert status == 1
    assert "0 plans fit" in out
    assert "72.0 GB are usable" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpt5", "--cluster", "dgx-a100", "--devices", "8"], ["gpt5", "gpt3-175b"]),
        (["gpt3-175b", "--cluster", "dgx", "--devices", "8"], ["dgx", "dgx-a100"]),
        (["gpt3-175b", "--cluster", "dgx-a100", "--devices", "12"], ["12", "8"]),
        (["no.toml", "--cluster", "dgx-a100", "--devices", "8"], ["no.toml"]),
        (
            ["gpt3-175b", "--cluster", "dgx-a100", "--devices", "8", "--batch-tokens", "3000"],
            ["3000", "2048"],
        ),
        (["gpt3-175b", "--cluster", "dgx-a100"], ["--devices"]),
    ],
)
def test_what_cannot_be_carried_out(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert len(err.splitlines()) == 1
    assert all(word in err for word in words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layers 8", ["line 1"]),
        (SMALL.replace("heads = 8", ""), ["heads is missing"]),
        (SMALL + "depth = 3", ["unknown key 'depth'", "layers"]),
        (SMALL + "gated = 1", ["gated = 1", "true or false"]),
        (SMALL.replace("layers = 8", 'layers = "8"'), ["layers = '8'", "whole number"]),
        (SMALL.replace("layers = 8", "layers = 0"), ["layers=0"]),
        (SMALL + "kv_heads = 3", ["kv_heads=3", "heads=8"]),
        (SMALL + "experts = 4", ["experts=4", "top_k"]),
    ],
)
def test_a_file_that_describes_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    status, _, err = run(capsys, str(file), "--cluster", "dgx-h100", "--devices", "8")
    assert status == 2
    assert len(err.splitlines()) == 1
    assert all(word in err for word in words), err


def test_a_planner_that_is_not_there_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    reference = Path("reference/a9_hybrid_parallel")
    (folder / "a9_hybrid_parallel").mkdir(parents=True)
    (folder / "__init__.py").touch()
    for name in ("__init__.py", "given.py"):
        text = (reference / name).read_text(encoding="utf-8")
        (folder / "a9_hybrid_parallel" / name).write_text(text, encoding="utf-8")
    (folder / "a9_hybrid_parallel/planner.py").write_text(
        "from .given import *\n\n\ndef plan(model, cluster, batch_tokens, candidates=None):\n"
        '    raise NotImplementedError("a9.plan")\n'
    )
    status = main(
        ["plan", "gpt3-175b", "--cluster", "dgx-a100", "--devices", "8", "--solution", str(folder)]
    )
    assert status == 2
    assert "a9.plan is not implemented yet" in capsys.readouterr().err
