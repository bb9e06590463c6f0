"""Running any `torch.distributed` script, unchanged, on simulated ranks.

Each rank executes the script as its own `__main__`, with the environment that `torchrun` would
give it; whatever backend it initialises, it gets the simulated cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.fabric.isolation import current_state
from grader.fabric.simulate import SimulationResult, simulate


class ScriptError(Exception):
    """The script cannot be run; the message is one line for its author."""


def _neighbours(folder: Path) -> list[str]:
    """Top-level modules beside the script: each rank imports its own copy of them."""
    names = {
        entry.stem if entry.suffix == ".py" else entry.name
        for entry in folder.iterdir()
        if entry.suffix == ".py" or (entry.is_dir() and (entry / "__init__.py").is_file())
    }
    return sorted(name for name in names if name.isidentifier() and name not in sys.modules)


def _package(script: Path) -> tuple[str, Path]:
    """The package that a script is in, and the folder that holds its outermost one.

    A script in no package: "" and its own folder.
    """
    names: list[str] = []
    folder = script.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), folder if names else script.parent


def run_script(
    script: Path,
    ranks: int,
    argv: Sequence[str] = (),
    *,
    devices_per_node: int | None = None,
    seed: int = 0,
    schedule: int | None = None,
    time_limit: float = 60.0,
    compute: bool = True,
    environment: Callable[[int], dict[str, str]] | None = None,
) -> SimulationResult:
    """Run `script` with arguments `argv` on `ranks` simulated ranks.

    A script inside a package is run as `python -m` would: its relative imports work.

    devices_per_node: sets LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK as on nodes of that size.
    compute: record FLOPs and bytes, so that the run can be timed.

    Raises ScriptError when the file cannot be read or does not compile.
    """
    script = script.resolve()
    try:
        code = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    except OSError as error:
        raise ScriptError(f"cannot read {script}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise ScriptError(f"{script} does not compile: {error}") from None
    local = devices_per_node or ranks
    package, root = _package(script)

    def variables(rank: int) -> dict[str, str]:
        node = {
            "LOCAL_RANK": str(rank % local),
            "LOCAL_WORLD_SIZE": str(min(local, ranks - rank // local * local)),
            "GROUP_RANK": str(rank // local),
            "GROUP_WORLD_SIZE": str(-(-ranks // local)),
        }
        return node | (environment(rank) if environment is not None else {})

    def body(rank: int, _: Any) -> None:
        module = ModuleType("__main__")
        module.__file__ = str(script)
        module.__dict__["__builtins__"] = __builtins__
        if package:
            module.__package__ = package
        state = current_state()
        assert state is not None
        state.modules["__main__"] = module
        sys.modules["__main__"] = module
        try:
            exec(code, module.__dict__)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise

    folder = str(script.parent)
    main = sys.modules["__main__"]
    path = list(dict.fromkeys([folder, str(root)]))
    sys.path[:0] = path
    own = _neighbours(script.parent)
    if package:
        own.append(package.partition(".")[0])
    try:
        return simulate(
            body,
            ranks,
            seed=seed,
            schedule=schedule,
            compute=compute,
            time_limit=time_limit,
            packages=own,
            argv=[str(script), *argv],
            environment=variables,
            initialize=False,
        )
    finally:
        sys.modules["__main__"] = main
        for each in path:
            sys.path.remove(each)
