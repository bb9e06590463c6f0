"""DualPipe and DualPipeV: micro-batches from both ends, forwards and backwards overlapped.

The shape of both is told in [DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 3.2.1 and
figure 5], the cut into a V in [Qi, Wan, Huang, Lin 2025, DualPipe could be better without the
Dual].
"""

from __future__ import annotations

from collections.abc import Sequence

from ..a6_pipeline_parallel.schedule import Action, Overlapped, Schedule, Step
from ..a6_pipeline_parallel.timeline import time_schedule


def dualpipe_schedule(
    ranks: int, microbatches: int, costs: Sequence[float] | None = None
) -> Schedule:
    """Two pipelines in opposite directions through the same ranks.

    Rank r holds stages r and p - 1 - r. Micro-batches 0 … m/2 - 1 enter at rank 0 and see stage s
    on rank s, the others enter at rank p - 1 and see stage s on rank p - 1 - s. The halves of an
    ``Overlapped`` pair belong to different micro-batches and directions.

    With k = p/2 - 1 and n = min(I, W) the makespan is at most
    m(F + B) - (m - p - 1)(F + B - FB) + max(k(FB + F - W - n), k(FB + I - W - n) - F, 0), and no
    rank keeps more than p + 1 chunks alive.

    Args:
        ranks: p, even. microbatches: m in both directions together, even.
        costs: (F, I, W, FB), if they are known: then a schedule that takes less time at them, with
            no more activations, may be returned in place of the published one. Optional; nothing
            is graded with it.

    Raises:
        ValueError: ``ranks`` is odd or below 2, ``microbatches`` odd or below 2 ``ranks``.
    """
    # BEGIN SOLUTION
    if ranks < 2 or ranks % 2:
        raise ValueError(f"ranks={ranks}: expected an even number, at least 2")
    if microbatches % 2 or microbatches < 2 * ranks:
        raise ValueError(
            f"microbatches={microbatches}: expected an even number, at least 2 · ranks={2 * ranks}"
        )
    half = microbatches // 2
    up, down = range(half), range(half, microbatches)
    schedule: Schedule = []
    for rank in range(ranks):
        mirror = ranks - 1 - rank
        # Seen from its own end of the pipeline, a rank and its mirror image do the same.
        directions = [(rank, up), (mirror, down)] if rank < mirror else [(mirror, down), (rank, up)]
        schedule.append(_eight_steps(min(rank, mirror), ranks // 2, half, directions))
    if costs is None:
        return schedule
    # A gradient that goes on before the weights are done may let everybody else go on sooner.
    return min(schedule, _split(schedule), key=lambda s: time_schedule(s, costs).makespan)
    # END SOLUTION


def dualpipev_schedule(ranks: int, microbatches: int) -> Schedule:
    """DualPipe cut in half: one direction, down the ranks and up again.

    Rank r holds stages r and 2p - 1 - r. All micro-batches enter at rank 0 and leave there. With
    PP = 2p and M = 2m the makespan and the peak are those of DualPipe, but every stage exists once.

    Raises:
        ValueError: ``ranks`` is below 1, or ``microbatches`` below 2 ``ranks``.
    """
    # BEGIN SOLUTION
    if ranks < 1:
        raise ValueError(f"ranks={ranks}: expected at least 1")
    if microbatches < 2 * ranks:
        raise ValueError(f"microbatches={microbatches}: expected at least 2 · ranks={2 * ranks}")
    everything = range(microbatches)
    return [
        _eight_steps(
            rank, ranks, microbatches, [(rank, everything), (2 * ranks - 1 - rank, everything)]
        )
        for rank in range(ranks)
    ]
    # END SOLUTION


# BEGIN SOLUTION
class _Chunks:
    """One rank's steps as they are written down: two directions, each with its next chunks."""

    def __init__(self, directions: Sequence[tuple[int, range]]) -> None:
        self.steps: list[Step] = []
        self._stages = [stage for stage, _ in directions]
        self._forwards = [iter(microbatches) for _, microbatches in directions]
        self._backwards = [iter(microbatches) for _, microbatches in directions]
        self._weights: list[Action] = []

    def forward(self, direction: int) -> None:
        self.steps.append(self._next_forward(direction))

    def backward(self, direction: int, split: bool = False) -> None:
        action = self._next_backward(direction, "I" if split else "B")
        self.steps.append(action)
        if split:
            self._weights.append(action._replace(kind="W"))

    def weight(self) -> None:
        """The weight gradient that has waited longest."""
        self.steps.append(self._weights.pop(0))

    def forward_backward(self, forward: int, backward: int) -> None:
        pair = self._next_forward(forward), self._next_backward(backward, "B")
        self.steps.append(Overlapped(*pair))

    def _next_forward(self, direction: int) -> Action:
        return Action("F", self._stages[direction], next(self._forwards[direction]))

    def _next_backward(self, direction: int, kind: str) -> Action:
        return Action(kind, self._stages[direction], next(self._backwards[direction]))


def _eight_steps(
    depth: int, depths: int, microbatches: int, directions: Sequence[tuple[int, range]]
) -> list[Step]:
    """The steps of one rank, in the eight parts of DualPipe.

    depth: distance from the rank's own end of the pipeline, 0 … depths - 1; the middle is deepest.
    microbatches: of each direction. directions: (stage, micro-batches) of direction 0, which enters
    at the near end, and of direction 1, which comes back from the middle.

    The names of the parts say what is repeated: nF0B1 is n forwards of direction 0, each followed
    by a backward of direction 1; "&" marks an overlapped pair.
    """
    chunks = _Chunks(directions)
    inner = depths - 1 - depth  # ranks between this one and the middle
    middle = inner == 0

    # Step 1: nF0. Fill the pipeline from the near end.
    for _ in range(2 * inner):
        chunks.forward(0)

    # Step 2: nF0F1. The other direction has arrived.
    for _ in range(depth + 1):
        chunks.forward(0)
        chunks.forward(1)

    # Step 3: nI1W1F1. Backwards come back; their weight gradients fill the gaps.
    for _ in range(inner):
        chunks.backward(1, split=True)
        chunks.weight()
        chunks.forward(1)

    # Step 4 (the main part): nF0&B1F1&B0. Every forward hides behind a backward.
    for i in range(microbatches - 2 * depths + depth + 1):
        if i == 0 and middle:
            # Its backward is not held up by the forward that comes first: the wave starts earlier.
            chunks.forward(0)
            chunks.backward(1)
        else:
            chunks.forward_backward(0, 1)
        chunks.forward_backward(1, 0)

    # Step 5: nB1F1&B0. Direction 0 has no forwards left.
    for _ in range(inner):
        chunks.backward(1)
        chunks.forward_backward(1, 0)

    # Step 6: nB1B0. The second half puts off its weight gradients, so that others can go on.
    split_from = depth + 1  # of the 2 (depth + 1) backwards
    for i in range(depth + 1):
        chunks.backward(1, split=2 * i >= split_from)
        chunks.backward(0, split=2 * i + 1 >= split_from)

    # Step 7: nW0I0. What is left of direction 0; weight gradients while it waits.
    for _ in range(inner):
        chunks.weight()
        chunks.backward(0, split=True)

    # Step 8: nW. The weight gradients that are left.
    for _ in range(depth + 1):
        chunks.weight()
    return chunks.steps


def _split(schedule: Schedule) -> Schedule:
    """Every whole backward, paired or not, as I and at once W: the same activations."""
    result: Schedule = []
    for steps in schedule:
        cut: list[Step] = []
        for step in steps:
            backward = step.backward if isinstance(step, Overlapped) else step
            if backward.kind != "B":
                cut.append(step)
                continue
            gradient = backward._replace(kind="I")
            paired = isinstance(step, Overlapped)
            cut += [Overlapped(step.forward, gradient) if paired else gradient]
            cut.append(backward._replace(kind="W"))
        result.append(cut)
    return result


# END SOLUTION
