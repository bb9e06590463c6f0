"""A few real processes with gloo: `python -m tests.pipeline.gloo_world SIZE MODULE:FUNCTION ARGS`.

This process imports torch once and forks, before anything is computed; ranks meet through a file.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_world(size: int, target: str, arguments: Any, timeout: float = 120.0) -> list[Any]:
    """function(rank, arguments) on `size` processes; its results (JSON), by rank.

    Raises AssertionError with what the ranks printed when one fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.pipeline.gloo_world"]
        command += [str(size), target, json.dumps(arguments), folder]
        run = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert run.returncode == 0, run.stderr[-4000:]
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(size)]


def _rank(rank: int, size: int, target: str, arguments: Any, folder: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder, "store")), size)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    module, _, name = target.partition(":")
    result = getattr(importlib.import_module(module), name)(rank, arguments)
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def _main(size: int, target: str, arguments: Any, folder: str) -> int:
    importlib.import_module(target.partition(":")[0])
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _rank(rank, size, target, arguments, folder)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    return int(any(os.waitpid(child, 0)[1] for child in children))


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]))
