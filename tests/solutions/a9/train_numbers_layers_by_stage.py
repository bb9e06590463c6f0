"""Layers are saved by their number on the stage: stages overwrite each other."""

from .train import _Stage

TASK = "a9.train"
EXPECT = {
    "status": "error",
    "check": "goes on from a checkpoint",
    "cause": "numbers that depend on the layout",
}


class _Local(_Stage):
    def __init__(self, config, mesh, parts, first, end):
        super().__init__(config, mesh, parts, first, end)
        self.weights = [
            w._replace(name=f"{int(w.name.split('.')[0]) - first}.{w.name.split('.', 1)[1]}")
            for w in self.weights
        ]


_Stage = _Local
