"""Run the benchmarks by name, or all of them; each is a module here with `main() -> None`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from pathlib import Path

#: Run only when named: they need a GPU.
ON_REQUEST = ("gpu", "kernels_gpu", "kernels_python")


def names() -> list[str]:
    """All benchmarks, by module name."""
    folder = [str(Path(__file__).parent)]
    return [m.name for m in pkgutil.iter_modules(folder) if not m.name.startswith("_")]


def main(arguments: list[str]) -> int:
    """Run those named (all when none is); 2 for a name that is none."""
    known = names()
    unknown = [name for name in arguments if name not in known]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in arguments or [name for name in known if name not in ON_REQUEST]:
        module = importlib.import_module(f"bench.{name}")
        print(f"\n== {name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
        begin = time.perf_counter()
        module.main()
        print(f"({time.perf_counter() - begin:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
