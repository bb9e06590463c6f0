"""`grader plan`: asks a solution's planner, in a worker as always; tables of what it says."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grader.checks.a9_memory import MODEL
from grader.checks.framework import CheckFailed
from grader.checks.settings import CannotRun, Settings, solution_folder
from grader.checks.world import SimulatedCluster

#: Sequences of a step in the published trainings: GPT-3's 3.2 million tokens, Llama 3's 16 million,
#: DeepSeek-V3's 63 million; Megatron's table for the last.
PUBLISHED = {"gpt3-175b": 1536, "llama3-405b": 2048, "deepseek-v3": 15360, "megatron-1t": 3072}
SEQUENCES = 1024

NEEDED = ("layers", "hidden", "heads", "vocab", "sequence")
DIMENSIONS = ("tp", "cp", "ep", "pp", "dp")


def read_model(path: Path) -> dict[str, Any]:
    """The fields of a model in a TOML file; `CannotRun`, with file and key, if it describes none.

    name = "mine"          # left out: the file's name
    layers = 24
    hidden = 2048
    heads = 16
    vocab = 32000
    sequence = 4096        # all others may be left out: given.Model says what they mean
    """
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotRun(f"cannot read the model file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CannotRun(f"{path}: {error}") from None
    for key, value in fields.items():
        if key not in MODEL:
            raise CannotRun(f"{path}: unknown key {key!r}; known: {', '.join(MODEL)}")
        usual = type(MODEL[key])
        if type(value) is not usual:
            words = {int: "a whole number", bool: "true or false", str: "text"}
            raise CannotRun(f"{path}: {key} = {value!r}: expected {words[usual]}")
    missing = [key for key in NEEDED if key not in fields]
    if missing:
        raise CannotRun(f"{path}: {missing[0]} is missing; needed are {', '.join(NEEDED)}")
    return {"name": path.stem} | fields


def find_plans(
    model: str,
    cluster: str,
    devices: int,
    *,
    batch_tokens: int | None = None,
    most: int = 5,
    solution: str = "assignments",
    in_process: bool = False,
) -> dict[str, Any]:
    """What `drivers.a9_plans.best_plans` tells of a model (a name, or a .toml file).

    Raises `CannotRun` for a file that describes no model, and when the solution's code fails.
    """
    file = Path(model)
    wanted: Any = read_model(file) if file.suffix == ".toml" or file.is_file() else model
    inputs = {
        "model": wanted,
        "cluster": cluster,
        "devices": devices,
        "batch_tokens": batch_tokens,
        "sequences": PUBLISHED.get(model, SEQUENCES),
        "most": most,
    }
    settings = Settings(solution, solution_folder(solution), in_process=in_process)
    try:
        outputs, _ = SimulatedCluster(settings, {}).run(
            "a9_plans:best_plans", [inputs], task="a9.plan", time_limit=300.0, wall_seconds=310.0
        )
    except CheckFailed as failure:
        raise CannotRun(failure.message) from None
    found: dict[str, Any] = outputs[0]
    return found


def describe(found: Mapping[str, Any], cluster: str, solution: str) -> str:
    """Tables of the plans, and why the others are none."""
    refused = sum(found["refused"].values())
    lines = [
        f"{found['name']} ({found['parameters'] / 1e9:,.1f}B parameters) on {found['devices']} × "
        f"{cluster}, {found['batch_tokens']:,} tokens a step; planner of {solution}",
        f"{found['fitting']:,} plans fit, {refused:,} do not",
    ]
    rows = found["rows"]
    if rows:
        lines += ["", *_table(["", *PLAN], [[n, *_plan(row)] for n, row in enumerate(rows, 1)])]
        lines += ["", f"memory of a device, GB ({found['usable'] / 1e9:.1f} are usable)"]
        lines += _table(["", *MEMORY], [[n, *_memory(row)] for n, row in enumerate(rows, 1)])
        lines += ["", "sent by a device in a step, GB"]
        lines += _table(["", *DIMENSIONS], [[n, *_traffic(row)] for n, row in enumerate(rows, 1)])
    names = {name: None for row in rows for name in row["parts"]}
    if names:
        lines += ["", "seconds of a step"]
        cells = [[n, *(f"{row['parts'].get(name, 0):.3f}" for name in names)]
                 for n, row in enumerate(rows, 1)]  # fmt: skip
        lines += _table(["", *names], cells)
    if found["refused"]:
        lines += ["", "refused, with one example each"]
    for kind, count in sorted(found["refused"].items()):
        lines.append(f"  {count:,} for {kind}: {found['reasons'][kind]}")
    return "\n".join(lines)


PLAN = (
    "dp", "pp", "tp", "cp", "ep", "sp", "micro-batches", "chunks", "zero", "recompute", "seconds",
    "MFU", "bubble",
)  # fmt: skip
MEMORY = ("weights", "gradients", "optimizer", "activations", "total")


def _plan(row: Mapping[str, Any]) -> list[str]:
    cut = row["plan"]
    sizes = [str(cut[name]) for name in ("dp", "pp", "tp", "cp", "ep")]
    return [
        *sizes,
        "yes" if cut["sequence_parallel"] else "no",
        f"{cut['micro_batches']} of {cut['micro_batch']}",
        str(cut["chunks"]),
        str(cut["zero"]),
        cut["recomputation"],
        f"{row['seconds']:.3f}",
        f"{row['mfu']:.1%}",
        f"{row['bubble']:.1%}",
    ]


def _memory(row: Mapping[str, Any]) -> list[str]:
    return [_gb(row["memory"].get(name)) for name in MEMORY]


def _traffic(row: Mapping[str, Any]) -> list[str]:
    return [_gb(row["traffic"].get(name)) for name in DIMENSIONS]


def _gb(nbytes: float | None) -> str:
    return "—" if nbytes is None else f"{nbytes / 1e9:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]
