"""From a failure to its likely cause, in one line.

Three kinds of evidence. The numbers: a result that equals what a well-known mistake gives. The
words of the sanitizer or of PyTorch. And comparison: when some cases of a check fail and others
pass, what is true of just those that fail.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.checks.framework import CheckFailed, LimitExceeded, SolutionTimeout, Unimplemented
from grader.checks.world import CAUSES, Outcome, SimulatedCluster, same
from grader.fabric.record import Record
from grader.fabric.trace import Trace

#: Global rank -> the global ranks that its result depends on (itself may be among them).
Needs = Mapping[int, set[int]]

NOT_IN_MESSAGES = "the data did not travel in messages"
DID_NOTHING = "the function does nothing: no message was sent, and no argument was written to"
TOO_LATE = "the error was found only after messages had been sent"
TO_ITSELF = "a rank sends to itself: its own slice is a copy, not a message"
MEETS_ITSELF = (
    "in a sub-group the group rank was taken for the global rank, so that a rank meets itself"
)

#: What may be true of a case -> what it means when just such cases fail. Narrow ones first.
TRAITS = {
    "one rank": "right among several ranks, wrong for a rank that is alone",
    "empty": "right for all sizes but none: an empty tensor or an empty slice is not handled",
    "sub-group": (
        "right in the default group, wrong in sub-groups, where a group rank is not the global rank"
    ),
    "not a power of two": "right for powers of two, wrong for another number of ranks",
    "strided": "right for contiguous tensors, wrong for a tensor that is not contiguous",
    "uneven": "right when all tensors have one size, wrong when the sizes differ",
    "split sizes": "right without split sizes, wrong with them",
    "several columns": "right in one dimension, wrong in two: split sizes count rows, not elements",
    "16-bit": "right for all dtypes but those of 16 bits",
    "integer": "right for floating-point numbers, wrong for integers",
    "scalar": "right for tensors with dimensions, wrong for a scalar tensor",
    "shorter than the world": "right for long tensors, wrong for fewer elements than ranks",
    "root is not rank 0": "right with rank 0 as the root, wrong with another one",
    "AVG": "right for all operations but AVG",
    "MAX or MIN": "right for SUM, wrong for MAX or MIN",
    "PRODUCT": "right for SUM, wrong for PRODUCT",
}

#: Of these, cases may also pass (a mistake need not show in every one), as long as all that fail
#: have them.
OFTEN_HIDDEN = ("sub-group", "not a power of two", "strided", "several columns", "uneven")

#: Text in a failure's message -> its cause.
SAID = {
    "waits in the store or sleeps": (
        "a rank sleeps, or waits in the store for a key that nobody writes (a timeout of zero is "
        "none)"
    ),
    "returned without doing what others wait for": (
        "the ranks disagree on who sends what to whom: some wait for a partner that has returned"
    ),
    "Every rank here sends first": (
        "every rank sends before it receives, and a send waits for its receiver: a cycle"
    ),
    "Every rank here receives first": "every rank receives before it sends: nobody begins",
    "deadlock:": "the ranks disagree on who sends what to whom, or in which order",
    "is not part of group": "a group rank is passed where PyTorch expects a global rank",
    "of a group of": "a global rank is passed where a group rank is expected",
    "batch_isend_irecv([])": (
        "a rank that has nothing to send or receive (alone, or all is empty) must not call "
        "dist.batch_isend_irecv: an empty list raises IndexError"
    ),
    "from itself: copy": TO_ITSELF,
    "to itself: copy": TO_ITSELF,
}


@dataclass
class Case:
    """One call of a student's function on all ranks, and how to judge what came back.

    label: in words, "5 ranks, root 3, bfloat16 (33,)". arguments: by keyword, one dict per
    *global* rank. judge(answers): raises CheckFailed; answers by global rank, None outside `ranks`.
    op: name of the reduce operation, None for a function without one. ranks: global ranks of the
    sub-group. traits: keys of `TRAITS`. refused: an exception is an answer. must_refuse: ValueError
    on all ranks, before anything is sent, is the only answer. needs: None where nothing is known.
    """

    label: str
    arguments: list[dict[str, Any]]
    judge: Callable[[list[Any]], None]
    op: str | None = None
    ranks: Sequence[int] | None = None
    traits: frozenset[str] = frozenset()
    refused: bool = False
    must_refuse: bool = False
    needs: Needs | None = None

    @property
    def world_size(self) -> int:
        """Ranks that the case needs, whether they take part or not."""
        return len(self.arguments)

    @property
    def members(self) -> list[int]:
        """Global ranks that take part, in group order."""
        return list(range(self.world_size) if self.ranks is None else self.ranks)

    @property
    def permuted(self) -> bool:
        """Whether group ranks and global ranks are not the same numbers."""
        return self.members != list(range(len(self.members)))


@dataclass
class Bench:
    """A driver, a task and a cluster to run cases on.

    needs: whose tensors a case's results depend on, for cases that do not say so themselves.
    """

    cluster: SimulatedCluster
    task: str
    driver: str
    options: dict[str, Any] = field(default_factory=dict)
    needs: Callable[[Case], Needs | None] | None = None

    def run(self, cases: Sequence[Case], **options: Any) -> Outcome:
        """Run cases of one world size in one world, in order; judge them all."""
        inputs = [
            {
                "task": self.task,
                "cases": [
                    {
                        # A copy, or ranks would share the memory of a tensor that two of them get.
                        "arguments": copy.deepcopy(case.arguments[rank]),
                        "op": case.op,
                        "ranks": None if case.ranks is None else list(case.ranks),
                        "refused": case.refused,
                    }
                    for case in cases
                ],
            }
            for rank in range(cases[0].world_size)
        ]
        try:
            outcome = self.cluster.run(
                self.driver, inputs, task=self.task, **{**self.options, **options}
            )
        except CheckFailed as failure:
            failure.cause = failure.cause or said(failure.message)
            if failure.cause == TO_ITSELF and any(case.permuted for case in cases):
                failure.cause = MEETS_ITSELF
            if len(cases) == 1 and cases[0].must_refuse and failure.status == "failed":
                _sent_instead_of_refused(cases[0], failure)
            raise
        for number, case in enumerate(cases):
            answers = [each[number] for each in outcome.outputs]
            try:
                case.judge(answers)
            except CheckFailed as failure:
                failure.message = f"{case.label}: {failure.message}"
                if self._needs(case, answers) and _did_nothing(case, answers, outcome.trace):
                    failure.cause = DID_NOTHING
                raise
        self._expect_messages(cases, outcome)
        return outcome

    def _needs(self, case: Case, answers: Sequence[Any]) -> Needs:
        """What must have reached each rank; nothing where the call was refused."""
        if case.must_refuse or any(answers[rank].get("error") for rank in case.members):
            return {}
        needs = self.needs(case) if case.needs is None and self.needs else case.needs
        return {rank: others - {rank} for rank, others in (needs or {}).items() if others - {rank}}

    def _expect_messages(self, cases: Sequence[Case], outcome: Outcome) -> None:
        """Word of each rank reached all whose results depend on it; refused calls sent nothing."""
        sent = sum(outcome.trace.messages_sent)
        if sent and all(case.must_refuse for case in cases):
            raise CheckFailed(
                f"{cases[0].label}: {sent} messages were sent by a call that must be refused, "
                f"expected none",
                cause=TOO_LATE,
            )
        heard = heard_of(outcome.trace.record)
        for number, case in enumerate(cases):
            answers = [each[number] for each in outcome.outputs]
            for rank, others in self._needs(case, answers).items():
                for other in sorted(others - heard[rank]):
                    raise CheckFailed(
                        f"{case.label}: rank {rank}'s result depends on rank {other}, but no "
                        f"message from it (directly or through others) ever reached it",
                        cause=NOT_IN_MESSAGES,
                    )

    def run_all(self, cases: Sequence[Case], compare: Sequence[Case] = (), **options: Any) -> None:
        """Run all cases, those of one world size together; explain a failure by comparison.

        compare: cases of another check that tell more about what goes wrong; run on failure only.
        A strided tensor may be refused instead of handled, as long as the error says so.
        """
        try:
            self._run_by_world(cases, options)
        except (Unimplemented, SolutionTimeout, LimitExceeded):
            raise
        except CheckFailed as failure:
            if not self._only_refuses_strides(failure, cases, compare, options):
                raise

    def _run_by_world(self, cases: Sequence[Case], options: dict[str, Any]) -> None:
        for world in sorted({case.world_size for case in cases}):
            self.run([case for case in cases if case.world_size == world], **options)

    def _only_refuses_strides(
        self,
        failure: CheckFailed,
        cases: Sequence[Case],
        compare: Sequence[Case],
        options: dict[str, Any],
    ) -> bool:
        """Run each case alone; true if nothing but strides is refused, else explain `failure`."""
        failed: list[tuple[Case, CheckFailed]] = []
        passed: list[Case] = []
        refused: list[Case] = []
        for case in [*cases, *compare]:
            try:
                self.run([case], **options)
                passed.append(case)
            except SolutionTimeout:
                return False
            except CheckFailed as again:
                if "strided" in case.traits and "contiguous" in again.message.partition("\n")[0]:
                    refused.append(case)
                else:
                    failed.append((case, again))
        if refused and not failed:
            self._run_by_world(passed, options)
            return True
        own = [(case, again) for case, again in failed if case not in compare]
        if own:
            self._explain(failure, own, [case for case, _ in failed], passed)
        elif failure.status == "failed":
            failure.cause = failure.cause or (
                "every case passes alone: something is left over from one call to the next (a "
                "message that nobody received, a global)"
            )
        return False

    def _explain(
        self,
        failure: CheckFailed,
        own: list[tuple[Case, CheckFailed]],
        failed: list[Case],
        passed: list[Case],
    ) -> None:
        # One case is told of, with its own cause: the first that has one.
        case, first = next((pair for pair in own if pair[1].cause), own[0])
        failure.message, failure.status = first.message, first.status
        if not first.message.startswith(case.label):
            failure.message = f"{case.label}: {first.message}"
        evidence = first.cause
        common = common_trait(failed, passed)
        if common is None:
            failure.cause = evidence
        else:
            failure.cause = f"{TRAITS[common]} ({evidence})" if evidence else TRAITS[common]


def _sent_instead_of_refused(case: Case, failure: CheckFailed) -> None:
    """Tell of a run that got stuck because a call was not refused."""
    if failure.cause == CAUSES["forbidden_call"]:
        failure.message = f"{case.label}: {failure.message}"
        return
    stuck = failure.message.startswith("deadlock")
    failure.message = (
        f"{case.label}: expected ValueError on every rank, but messages were sent\n"
        f"{failure.message}"
    )
    failure.cause = "the argument is not checked" + ", or not on every rank" * stuck


def _did_nothing(case: Case, answers: Sequence[Any], trace: Trace) -> bool:
    """Nothing was sent, returned or written."""
    if sum(trace.messages_sent):
        return False
    return all(
        answers[rank].get("returned") is None
        and all(
            same(after, case.arguments[rank][name])
            for name, after in answers[rank]["arguments"].items()
        )
        for rank in case.members
    )


def said(message: str) -> str | None:
    """The cause that the words of a message point to."""
    if "IndexError" in message and "batch_isend_irecv" in message:
        return SAID["batch_isend_irecv([])"]
    return next((cause for words, cause in SAID.items() if words in message), None)


def common_trait(failed: Sequence[Case], passed: Sequence[Case]) -> str | None:
    """The first of `TRAITS` that all cases that failed have, and none that passed.

    Failing that, one of `OFTEN_HIDDEN` that some of those that passed lack.
    """
    if not passed:
        return None
    shared = frozenset.intersection(*(case.traits for case in failed))
    telling = shared - frozenset().union(*(case.traits for case in passed))
    hidden = shared - frozenset.intersection(*(case.traits for case in passed))
    found = next((trait for trait in TRAITS if trait in telling), None)
    return found or next((trait for trait in OFTEN_HIDDEN if trait in hidden), None)


def reduction_suspects(
    op: str,
    contributions: Sequence[torch.Tensor],
    own: int,
    world_size: int,
    server: int | None = None,
) -> list[tuple[torch.Tensor, str]]:
    """Wrong results of a reduction that people get, each with its cause.

    contributions: by group rank, in a wide dtype. own: this rank's number among them.
    server: number of the rank that reduces for all, if one does.
    """
    total = torch.stack(list(contributions)).sum(0)
    size = len(contributions)
    mine = contributions[own]
    suspects = [
        (mine, "the tensor came back as it went in: the result was put elsewhere, or nowhere"),
        (torch.zeros_like(mine), "the result is all zeros: it was never written"),
    ]
    if op == "AVG":
        suspects += [
            (total, "the sum was never divided by the number of ranks"),
            (total / size**2, "the sum was divided by the number of ranks twice"),
            (total / world_size, "the sum was divided by the size of the world, not of the group"),
        ]
    elif op != "SUM":
        suspects.append((total, "the result is the sum: `op` is ignored"))
    absentees = [] if server is None else [(server, "the server's own tensor")]
    absentees += [(own, "a rank's own tensor")]
    absentees += [(rank, f"the tensor of group rank {rank}") for rank in range(size)]
    for absent, whose in absentees if size > 1 else ():
        left = [each for rank, each in enumerate(contributions) if rank != absent]
        suspects.append((_reduced(op, left, size), f"{whose} is left out of the result"))
    suspects.append((_reduced(op, [*contributions, mine], size), "its own tensor counts twice"))
    return suspects


def _reduced(op: str, contributions: Sequence[torch.Tensor], divisor: int) -> torch.Tensor:
    stacked = torch.stack(list(contributions))
    if op == "PRODUCT":
        return stacked.prod(0)
    if op in ("MAX", "MIN") and not stacked.is_complex():
        return stacked.amax(0) if op == "MAX" else stacked.amin(0)
    return stacked.sum(0) / divisor if op == "AVG" else stacked.sum(0)


def untouched_tail(got: torch.Tensor, before: torch.Tensor) -> str | None:
    """Where the second part of a result is still what it was before the call."""
    changed = (got != before).flatten()
    if changed.numel() < 2 or not bool(changed.any()):
        return None
    first = int(changed.nonzero()[-1]) + 1
    if first > 0.75 * changed.numel():
        return None
    return f"only the first {first} of {changed.numel()} elements were worked on"


def heard_of(record: Record) -> list[set[int]]:
    """By rank: whose messages, direct or handed on, it had waited for when it came to its end."""
    carried: dict[int, frozenset[int]] = {}
    known = [{rank} for rank in range(record.world_size)]
    programs: list[Iterator[Any]] = [iter(events) for events in record.events]
    blocked: dict[int, list[int]] = {}
    runnable = list(range(record.world_size))
    while runnable:
        rank = runnable.pop()
        for event in programs[rank]:
            operation = None if event.kind == "compute" else record.operations[event.operation]
            if operation is None or operation.match < 0 or not event.region:
                continue
            if event.kind == "post" and operation.kind == "send":
                carried[operation.match] = frozenset(known[rank])
                for waiter in blocked.pop(operation.match, ()):
                    known[waiter] |= carried[operation.match]
                    runnable.append(waiter)
            elif event.kind == "wait" and operation.kind == "recv":
                if operation.match not in carried:
                    blocked.setdefault(operation.match, []).append(rank)
                    break
                known[rank] |= carried[operation.match]
    return known
