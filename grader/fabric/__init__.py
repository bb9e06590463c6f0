"""The simulated cluster: a `torch.distributed` backend named "sim".

`simulate` runs a function on every rank of a world inside this process and says what is wrong with
it; the `Record` that it leaves is timed afterwards, on any cluster.
"""

from grader.fabric.current import current_runtime, region
from grader.fabric.findings import KINDS, Finding, SimulationAborted
from grader.fabric.interception import register_backend
from grader.fabric.record import Event, Location, Operation, Record
from grader.fabric.simulate import RankError, SimulationResult, simulate

__all__ = [
    "KINDS",
    "Event",
    "Finding",
    "Location",
    "Operation",
    "RankError",
    "Record",
    "SimulationAborted",
    "SimulationResult",
    "current_runtime",
    "region",
    "simulate",
]

register_backend()
