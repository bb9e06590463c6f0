"""What runs beside the student's code of assignment 1, on every rank.

Two shapes of work: `collective` calls the task's function case by case and hands back all that it
may have changed; `rendezvous` does so with a store that keeps a diary. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from grader.checks.context import RankContext


def collective(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call the function of `inputs["task"]` once for each of `inputs["cases"]`.

    A case: `arguments` (by keyword), `op` (a name, or None for a function without), `ranks` (of
    the sub-group, None for the default group), `refused` (an exception is an answer).
    Per case the answer is None outside the group, else `returned`, `arguments` as they are after
    the call, `given` (the tensors that stood in each list before it), and `error`.
    """
    function = ctx.function(inputs["task"])
    return [_one_case(ctx, function, case) for case in inputs["cases"]]


def _one_case(ctx: RankContext, function: Any, case: dict[str, Any]) -> Any:
    ranks = case["ranks"]
    group = ctx.group(ranks)
    if ranks is not None and ctx.rank not in ranks:
        return None
    arguments = dict(case["arguments"])
    given = {name: list(value) for name, value in arguments.items() if isinstance(value, list)}
    operation = {} if case["op"] is None else {"op": getattr(dist.ReduceOp, case["op"])}
    returned, error = None, None
    try:
        returned = ctx.call(function, **arguments, **operation, group=group)
    except NotImplementedError:
        raise
    except Exception as raised:
        if not case["refused"]:
            raise
        error = {"type": type(raised).__name__, "message": str(raised)}
    return {"returned": returned, "arguments": arguments, "given": given, "error": error}


class DiaryStore(Store):
    """A store over another one that writes down what a rank waited for in vain.

    prefix: put before every key, so that cases do not meet. patience: seconds that waits take
    which name no time-out. in_vain: seconds asked for by waits that failed, in order.
    """

    def __init__(self, inner: Store, prefix: str, patience: float) -> None:
        super().__init__()
        self._inner = inner
        self._prefix = prefix
        self._patience = timedelta(seconds=patience)
        self.in_vain: list[float] = []
        self.written = 0
        self.written_before_first_failure = 0

    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self.written += 1
        self._inner.set(self._prefix + key, value)  # type: ignore[arg-type]

    def get(self, key: str) -> bytes:
        """The value of a key, waiting for it."""
        self.wait([key])
        return self._inner.get(self._prefix + key)

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return its value."""
        return self._inner.add(self._prefix + key, amount)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there."""
        return self._inner.check([self._prefix + key for key in keys])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait for keys; a time-out of zero is no limit, as in torch's own stores."""
        asked = self._patience if timeout is None else timeout
        try:
            self._inner.wait([self._prefix + key for key in keys], asked or timedelta(minutes=5))
        except RuntimeError:
            if not self.in_vain:
                self.written_before_first_failure = self.written
            self.in_vain.append(asked.total_seconds())
            raise

    def set_timeout(self, timeout: timedelta) -> None:
        """The time-out of waits that name none."""
        self._patience = timeout

    @property
    def timeout(self) -> timedelta:
        """The time-out of waits that name none."""
        return self._patience


def rendezvous(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call `rendezvous` once for each of `inputs["cases"]`, unless this rank is to stay away.

    A case: `arguments` (rank, world_size, address; `timeout` in seconds), `absent`, `refused`.
    The answer: `returned`, `error`, and from the store's diary `in_vain`, `written`,
    `written_before_first_failure`.
    """
    function = ctx.function("a1.rendezvous")
    answers: list[Any] = []
    for number, case in enumerate(inputs["cases"]):
        if case["absent"]:
            answers.append(None)
            continue
        arguments = dict(case["arguments"])
        arguments["timeout"] = timedelta(seconds=arguments["timeout"])
        store = DiaryStore(ctx.store, f"case {number}: ", patience=1.0)
        returned, error = None, None
        try:
            returned = ctx.call(function, store, **arguments)
        except NotImplementedError:
            raise
        except Exception as raised:
            if not case["refused"]:
                raise
            error = {"type": type(raised).__name__, "message": str(raised)}
        answers.append(
            {
                "returned": returned,
                "error": error,
                "in_vain": store.in_vain,
                "written": store.written,
                "written_before_first_failure": store.written_before_first_failure,
            }
        )
    return answers
