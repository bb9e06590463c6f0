"""`python -m kernels.setup`: build the native layer once. Without a compiler, say so and go on."""

from __future__ import annotations

import sys

from kernels import cuda_problem, native
from kernels.compilers import NoCompiler


def main() -> int:
    """Build, or say why not. Everything but the kernel tasks works without."""
    try:
        folder = native.folder()
    except (NoCompiler, native.NotBuilt) as problem:
        print(f"kernels: not built, kernel tasks will be skipped: {problem}", file=sys.stderr)
        return 0
    print(f"kernels: ready in {folder}")
    print(f"kernels: GPU: {cuda_problem() or 'found'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
