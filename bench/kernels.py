"""Kernels on the CPU: seconds of a build, and of reduce_add over 2²⁰ elements, simulated."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import torch

from kernels.build import build_cpu
from kernels.library import KernelFile

ROOT = Path(__file__).resolve().parents[1]
ELEMENTS = 1 << 20


def main() -> None:
    """Print the median of five for each."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "a2_ring_all_reduce" / "kernels.cu"
        path.parent.mkdir()
        shutil.copy(ROOT / "reference" / "a2_ring_all_reduce" / "kernels.cu", path)
        for checked in (False, True):
            edited, unchanged = [], []
            for _ in range(5):
                path.write_text(f"{path.read_text()}// {os.urandom(8).hex()}\n")
                for times in (edited, unchanged):
                    file = KernelFile(path)
                    begin = time.perf_counter()
                    build_cpu(file.source, checked=checked)
                    times.append(time.perf_counter() - begin)
            mode = "checked" if checked else "fast"
            print(f"build after an edit, {mode}: {sorted(edited)[2]:.2f} s")
            print(f"build unchanged, {mode}: {sorted(unchanged)[2]:.3f} s")
        file = KernelFile(path)
        dst, src = torch.zeros(ELEMENTS), torch.ones(ELEMENTS)
        for mode in ("fast", "checked"):
            seconds = [
                file.launch("reduce_add_fp32", [dst, src, ELEMENTS], grid=256, block=256, mode=mode)
                for _ in range(5)
            ]
            print(f"reduce_add of {ELEMENTS} floats, {mode}: {sorted(seconds)[2]:.3f} s")


if __name__ == "__main__":
    main()
