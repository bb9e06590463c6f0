"""Right: none of the own layers, all of torch's."""

from .parts import PARTS
from .train import choose_parts

TASK = "a9.train"
EXPECT = "passed"

_choose = choose_parts


def choose_parts(config, mesh):
    return _choose(config, mesh, fallback=PARTS)
