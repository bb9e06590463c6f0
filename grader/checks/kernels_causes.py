"""From a fault of the simulated machine to its likely cause, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from grader.checks.kernels_suspects import quoted

if TYPE_CHECKING:
    from grader.checks.kernels_run import Case

#: Tensors that many threads add to; an element of any other is the work of one thread.
_SUMS = ("counts", "grad_weight", "grad_bias")
_ROW = (
    "this tensor has one element for each row: its index must be the number of a row, not of an "
    "element or a column, and less than the number of rows"
)
_COLUMN = (
    "this tensor has one element for each column: its index must be the number of a column, not "
    "of an element or a row, and less than the number of columns"
)
_TOKEN = (
    "this tensor has one element for each token: its index must be the number of a token, not of "
    "a logit or a column, and less than the number of tokens"
)
#: What an index that runs past the end was to be the number of.
_ONE_FOR_EACH = {
    **dict.fromkeys(("lse", "lse_a", "lse_b", "mean", "rstd"), _ROW),
    **dict.fromkeys(("weight", "bias", "grad_weight", "grad_bias"), _COLUMN),
    **dict.fromkeys(("row_max", "sum_exp", "target_logit"), _TOKEN),
    **dict.fromkeys(("target", "logsumexp", "grad_loss"), _TOKEN),
}
_ELEMENT = re.compile(r"\b(\w+)\[(-?\d+)\]")
_UNWRITTEN = re.compile(r"written (\w+)\[(\d+)(?::(\d+))?\] \((\d+) of its (\d+) ")
_RACE = re.compile(r"race on ([\w ]+?)(?:\[\d+\])?(?: \((?:shared(?:, )?)?(?:byte \d+)?\))?, ")


def cause_of(fault: Mapping[str, Any], case: Case) -> str | None:
    """The likely cause in one line, as far as the fault and the launch tell it.

    fault: kind, text, line, other_line, barrier_line of a `kernels.KernelFault`.
    """
    text = str(fault["text"])
    if fault["kind"] == "out_of_bounds":
        return _outside(text, case)
    if fault["kind"] == "misaligned":
        return _misaligned(text, case)
    if fault["kind"] == "race":
        return _race(fault, text)
    if fault["kind"] == "barrier":
        return _barrier(text)
    if fault["kind"] == "unwritten":
        return _unwritten(text, case)
    return _other(fault["kind"], text)


def nothing_written(fault: Mapping[str, Any], case: Case) -> bool:
    """Whether all of a tensor is unwritten that is too small to show more."""
    found = _UNWRITTEN.search(str(fault["text"])) if fault["kind"] == "unwritten" else None
    return found is not None and found[4] == found[5] and is_small(case, found[1])


def is_small(case: Case, name: str) -> bool:
    """Whether a row of the tensor is too short for a 16-byte access of bfloat16 and a tail."""
    shape = case.tensors[name].shape if name in case.tensors else torch.Size([0])
    return shape[-1] <= 8


def unwritten_name(fault: Mapping[str, Any]) -> str:
    """The tensor that was never written."""
    found = _UNWRITTEN.search(str(fault["text"]))
    return found[1] if found is not None else ""


def _outside(text: str, case: Case) -> str | None:
    found = _ELEMENT.search(text)
    if found is None or found[1] not in case.tensors:
        if "in no tensor" in text or "no memory" in text:
            return "the address belongs to no tensor: a pointer or an index that is far off"
        if "local memory" in text:
            return "a pointer to a local variable is used by another thread: share a copy instead"
        return "the array is too small, or its index too large: blocks have up to 512 threads"
    name, index = found[1], int(found[2])
    tensor = case.tensors[name]
    width = tensor.shape[-1] if tensor.dim() == 2 else 1
    row = index // max(width, 1)
    if index < 0:
        if name in ("counts", "begin"):
            return (
                "an expert of -1 marks a dropped assignment, which is to be skipped, but its -1 is "
                "used as an index"
            )
        if name == "rows" and row == -1:
            return (
                "a position of -1 marks a dropped assignment, which is to be skipped, but its -1 "
                "is used as the number of a row"
            )
        if name == "logits":
            return _TARGET_ELSEWHERE
        return "the index is negative: a difference, or a mark such as -1, is used as an index"
    if index < tensor.numel():
        return "a vector access begins inside and ends outside: the tail needs single elements"
    if name == "logits" and index in _logits_of_targets(case):
        return _TARGET_ELSEWHERE
    if name == "tokens" and row < case.tensors["position"].numel():
        return (
            f"row {row} is taken, and tokens has {tensor.shape[0]}: the number of an assignment is "
            "used as that of its token, but each token has k assignments"
        )
    if name == "rows" and row < case.tensors["position"].numel():
        return (
            f"row {row} is taken, and rows has {tensor.shape[0]}: the number of an assignment is "
            "used as that of its row, but only position says which row that is"
        )
    return _ONE_FOR_EACH.get(name, _PAST_THE_END)


_PAST_THE_END = (
    "the index runs past the end: is it checked to be less than (not equal to) the number of "
    "elements, and is the tail handled?"
)
_TARGET_ELSEWHERE = (
    "the logit of a target that is not on this shard, or is ignored, is accessed: after "
    "vocab_start is subtracted, the shard's columns are 0 … vocab - 1"
)


def _logits_of_targets(case: Case) -> set[int]:
    """Where targets of other shards would lie, with and without vocab_start subtracted."""
    target, vocab = case.tensors["target"], case.tensors["logits"].shape[1]
    start = int(case.numbers["vocab_start"])
    columns = torch.stack([target - start, target])
    index = torch.arange(len(target)) * vocab + columns
    return set(index[(columns < 0) | (columns >= vocab)].tolist())


def _misaligned(text: str, case: Case) -> str:
    found, needed = _ELEMENT.search(text), re.search(r"no multiple of (\d+)", text)
    if found is not None and needed is not None and found[1] in case.tensors:
        name, index, alignment = found[1], int(found[2]), int(needed[1])
        tensor = case.tensors[name]
        size = tensor.element_size()
        if case.shift_of(name) * size % alignment:
            return (
                f"{quoted(name)} itself does not begin at a multiple of {alignment} bytes: take "
                "single elements up to the first such address, or everywhere"
            )
        width = tensor.shape[-1]
        if tensor.dim() == 2 and width * size % alignment:
            return (
                f"row {index // width} of {quoted(name)} does not begin at a multiple of "
                f"{alignment} bytes, although {quoted(name)} does: a row has {width * size} bytes, "
                "so that not all rows are aligned"
            )
    return (
        "a 16-byte access needs an address that is a multiple of 16: handle the unaligned head, "
        "or fall back to single elements"
    )


def _race(fault: Mapping[str, Any], text: str) -> str:
    found = _RACE.search(text)
    plain = found[1] if found is not None else ""
    name = quoted(plain)
    line, other = int(fault["line"]), int(fault["other_line"])
    low, high = sorted((line, other))
    if "blocks run in any order" in text:
        if "__threadfence" in text and line != other:
            return (
                f"what blocks do at line {low} and at line {high} is in order only when "
                "__threadfence() and an atomic follow the first, and the second comes after a look "
                "at that atomic"
            )
        if re.search(r" \(byte \d+\)", text):
            return (
                f"{name} is one variable for all blocks, which run side by side: what a block "
                "keeps for itself belongs into __shared__ memory"
            )
        if plain in _SUMS and line == other:
            return f"several blocks add to one element of {name}: the addition must be atomic"
        if line == other:
            return (
                f"two blocks take the same element of {name}: the blocks overlap, the stride of "
                "the loop must be that of the whole grid"
            )
        return (
            f"a block at line {line} relies on what another does at line {other}: there is no "
            "barrier between blocks, so that each element must be the work of one"
        )
    if "(shared" in text:
        return _shared_race(text, name, line, other, int(fault["barrier_line"]))
    if plain in _SUMS and line == other:
        return f"several threads add to one element of {name}: the addition must be atomic"
    if line == other:
        return (
            f"two threads change the same element of {name}: each element must be the work of one "
            "thread, which does all additions to it"
        )
    return (
        f"lines {low} and {high} give the same element of {name} to two threads: their parts "
        "overlap, or a __syncthreads between the two lines is missing"
    )


def _shared_race(text: str, name: str, line: int, other: int, barrier: int) -> str:
    """Which of two uses of shared memory comes first in the program tells where a barrier belongs.

    A line before the last barrier can only come after it in the next round of a loop.
    """
    if "atomically" in text:
        return (
            f"{name} is changed by atomics and used plainly with no barrier in between: a "
            "__syncthreads between the two is missing"
        )
    if "writes one value" in text:
        return (
            f"two threads write different values to the same place of {name}: let one thread "
            "write it, or put a barrier between the two"
        )
    if line == other:
        return (
            f"several threads read and write one place of {name} at line {line}: a barrier is "
            "missing after each round of the loop, or the addition must be atomic"
        )
    write, read = (line, other) if "this thread writes" in text else (other, line)
    if barrier and write <= barrier < read:
        return (
            f"the write at line {write} belongs to the next round of the loop (or the next call), "
            f"and others still read {name} at line {read}: a barrier at the end of a round is "
            "missing"
        )
    if barrier and read <= barrier < write:
        return (
            f"line {read} reads {name} in the next round of the loop (or the next call), and "
            f"others still write it at line {write}: a barrier at the end of a round is missing"
        )
    if write > read:
        return (
            f"line {write} puts new values into {name} while other threads still read the old "
            f"ones at line {read}: a barrier between the two is missing"
        )
    return (
        f"line {read} reads what other threads write to {name} at line {write}: a barrier between "
        "the two is missing"
    )


def _barrier(text: str) -> str | None:
    if "not reached by all" in text:
        if "returned from the kernel" in text:
            return (
                "some threads return, and the others wait for them: threads without work must come "
                "to every barrier and warp operation too"
            )
        if "__syncthreads at" not in text.split(" is not reached")[0]:
            return (
                "a warp operation in a branch or loop that not all lanes of its mask take: lanes "
                "without work must come to it too"
            )
        return (
            "a barrier in a branch or loop that not all threads take: threads without work must "
            "come to it too"
        )
    if "different barriers" in text:
        return "each branch has a barrier of its own: all threads must come to the same one"
    if "does not name that lane" in text:
        return "the mask must name all lanes that come to the operation"
    if "does not take part" in text:
        return "the lane that is read has returned, or is not in the mask"
    return None


def _unwritten(text: str, case: Case) -> str | None:
    found = _UNWRITTEN.search(text)
    if found is None or found[1] not in case.tensors:
        return None
    name, begin, missing, count = found[1], int(found[2]), int(found[4]), int(found[5])
    end = int(found[3] or begin + 1)
    tensor, (grid, block) = case.tensors[name], case.shape
    width = tensor.shape[-1]
    if missing == count:
        if is_small(case, name):
            return (
                f"nothing of {quoted(name)} is written: what does not fill 16 bytes needs single "
                "elements"
            )
        return f"no thread writes to {quoted(name)} at all"
    if name == "position" and case.tensors["experts"].flatten()[begin] < 0:
        return "a dropped assignment needs a position too: -1"
    at, left = begin % width, width - begin % width
    if tensor.dim() == 2 and at and end % width == 0 and missing == tensor.shape[0] * left:
        return (
            f"columns from {at} on are written in no row: the tail of a row of {width}, which does "
            "not fill 16 bytes, is left out"
        )
    if "the last" in text:
        row = begin // width if tensor.dim() == 2 and at == 0 else begin
        shares = (grid * block * each for each in (1, 4, 8))
        if row in (grid, grid * block) or begin in shares:
            return (
                f"elements from {begin} on are not written: every thread or block of <<<{grid}, "
                f"{block}>>> does one share, and the loop over the rest is missing"
            )
        if missing < 8:
            return (
                "only the tail is left out: it does not fill 16 bytes and needs single elements, "
                "or the loop ends too early"
            )
        return f"the loop ends too early: nothing from element {begin} on is written"
    if "the first" in text:
        return "the head up to the first multiple of 16 bytes is left out"
    return f"the loop's stride skips elements, the first time at element {begin}"


def _other(kind: str, text: str) -> str | None:
    found = _ELEMENT.search(text)
    if kind == "read_only" and found is not None:
        return f"{quoted(found[1])} was taken for an output, but it is an input"
    if kind == "uninitialised" and "in this block" in text:
        return "this place of shared memory is read, but no thread of the block has written to it"
    if kind == "uninitialised" and found is not None:
        return (
            f"{quoted(found[1])} holds nothing before the launch: it must be written, not added to"
        )
    if kind == "bad_launch" and "too much shared" in text:
        return "the GPU refuses such a kernel: keep less in shared memory, or in turns"
    if kind == "assert":
        return "the kernel's own assertion"
    if "by zero" in text:
        return "a divisor is 0 for a tensor without elements, or without rows"
    if "local memory" in text:
        return "a recursion without an end, or a local array that is far too large"
    return None
