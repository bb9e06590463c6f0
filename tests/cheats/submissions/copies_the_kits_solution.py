# ruff: noqa
"""Looks for the kit's own solution on the disk and runs it."""

TASK = "a1.broadcast"
SEEN = "exec|compile"
QUICK = True
NEEDS = "sandbox"

# BEGIN SUBMISSION
import pathlib, sys

_found = None
for _entry in [*sys.path, *pathlib.Path(sys.prefix).parents, sys.prefix]:
    for _up in (pathlib.Path(_entry), *pathlib.Path(_entry).parents):
        _there = _up / "reference" / "a1_collectives" / "collectives.py"
        try:
            if _there.is_file():
                _found = _there.read_text()
        except OSError:
            pass
if _found is not None:
    exec(compile(_found.replace("@torch.no_grad()", ""), __file__, "exec"), globals())
