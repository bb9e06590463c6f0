"""Kernels on a GPU: bytes moved, time, GB/s and percent of a copy, beside torch's own operation.

    python -m bench.kernels_gpu [NAME …] [--nbytes N] [--values] [--solution FOLDER]

--values only compares each kernel with torch once: run that under compute-sanitizer.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from kernels import cuda_problem

ROOT = Path(__file__).resolve().parents[1]
HOMES = {
    "reduce_add": "a2_ring_all_reduce",
    "adamw": "a3_data_parallel",
    "vocab_cross_entropy": "a4_tensor_parallel",
    "attention_merge": "a5_sequence_parallel",
    "layer_norm": "a5_sequence_parallel",
    "moe": "a8_expert_parallel",
}


def _file(name: str) -> str:
    return next(f"{home}/kernels.cu" for key, home in HOMES.items() if name.startswith(key))


def main(arguments: list[str] | None = None) -> None:
    """Print one line for each kernel, or why there is none."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--nbytes", type=int, default=512 << 20)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--solution", default=str(ROOT / "reference"))
    chosen = parser.parse_args([] if arguments is None else arguments)
    if (problem := cuda_problem()) is not None:
        print(f"not run: {problem}")
        return
    from grader.checks.drivers.kernels_speed import measure
    from grader.checks.drivers.kernels_work import make, names
    from kernels.cache import cache_folder
    from kernels.ops import Kernels

    for name in chosen.names or names():
        file = _file(name)
        if chosen.values:
            work = make(Kernels(Path(chosen.solution) / file), name, chosen.nbytes)
            agrees = work.agree(lambda ours: ours())
            print(f"{name:36} {'agrees with torch' if agrees else 'DIFFERS from torch'}")
            continue
        found = measure(
            {
                "cache": str(cache_folder()),
                "folder": chosen.solution,
                "file": file,
                "kernel": name,
                "nbytes": chosen.nbytes,
                "repeats": chosen.repeats,
            }
        )
        ours, copy, theirs = (
            statistics.median(found[key]) for key in ("seconds", "copy_seconds", "their_seconds")
        )
        print(
            f"{name:36} {found['nbytes'] / 2**20:7.0f} MiB {ours * 1e6:9.1f} µs "
            f"{found['nbytes'] / ours / 1e9:8.1f} GB/s {copy / ours:6.1%} of copy "
            f"{theirs / ours:6.2f} × torch{'' if found['agrees'] else '  WRONG VALUES'}"
        )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
