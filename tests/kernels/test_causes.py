"""What is said of a fault: likely causes that fit the memory, the index and the loop's round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from grader.checks import kernels_merge_norm, kernels_moe, kernels_vocab
from grader.checks.kernels_causes import cause_of
from grader.checks.kernels_run import Case, begins, cause_of_death
from grader.checks.kernels_suspects import NOTHING_CHANGED, bf16, cut_off, left_out
from kernels.faults import KernelFault
from tests.kernels.conftest import Program

Make = Callable[..., Program]
FP32 = torch.float32


def _cases(make: Callable[..., list[Case]]) -> list[Case]:
    return make(torch.Generator().manual_seed(3), FP32)


MERGE, FORWARD = _cases(kernels_merge_norm.merge_cases), _cases(kernels_vocab.forward_cases)
PERMUTE, POSITION = (
    _cases(kernels_moe.permute_cases),
    kernels_moe.position_cases(torch.Generator().manual_seed(3)),
)


def _said(fault: KernelFault) -> str:
    plain = {name: getattr(fault, name) for name in ("kind", "line", "other_line", "barrier_line")}
    return cause_of(plain | {"text": str(fault)}, MERGE[0]) or ""


LOOP = """extern "C" __global__ void f(float* y, int64_t n) {
    __shared__ float tile[64];
    for (int k = 0; k < 2; k++) {
        %s
    }
}"""
WRITE = "tile[threadIdx.x] = y[threadIdx.x] + k;  // write\n"
READ = "y[threadIdx.x] = tile[63 - threadIdx.x];  // read\n"
BARRIER = "__syncthreads();\n"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (WRITE + READ + BARRIER, "line {read} reads what other threads write to `tile` at line"),
        (WRITE + BARRIER + READ, "the write at line {write} belongs to the next round"),
        (
            "if (k == 0) tile[threadIdx.x] = 1;\n" + BARRIER + READ + WRITE + BARRIER,
            "line {write} puts new values into `tile` while other threads still read",
        ),
        ("if (k > 0) " + READ + BARRIER + WRITE, "line {read} reads `tile` in the next round"),
    ],
)
def test_where_a_barrier_is_missing(
    program: Make, numbers: torch.Tensor, body: str, told: str
) -> None:
    p = program(LOOP % body)
    lines = {name: p.line(name) for name in ("write", "read")}
    assert told.format(**lines) in _said(p.fault(numbers, 64, block=64))


@pytest.mark.parametrize(
    ("statement", "grid", "told"),
    [
        ("counts[0] += 1;", 1, "several threads add to one element of `counts`"),
        ("counts[0] += 1;", 2, "several threads add to one element of `counts`"),
        (
            "if (threadIdx.x == 0) counts[0] += 1;",
            2,
            "several blocks add to one element of `counts`",
        ),
        ("y[threadIdx.x] += 1;", 2, "two blocks take the same element of `y`"),
        ("y[threadIdx.x / 2] += 1;", 1, "two threads change the same element of `y`"),
        ("y[threadIdx.x] = 1;\ny[31 - threadIdx.x] += 1;", 1, "to two threads: their parts"),
        (
            "__shared__ int s; s = threadIdx.x; __syncthreads(); y[threadIdx.x] = s;",
            1,
            "two threads write different values",
        ),
    ],
)
def test_races_are_told_by_who_shares_what(
    program: Make, numbers: torch.Tensor, statement: str, grid: int, told: str
) -> None:
    p = program('extern "C" __global__ void f(float* y, int* counts) {\n' + statement + "\n}")
    counts = torch.zeros(1, dtype=torch.int32)
    assert told in _said(p.fault(numbers, counts, grid=grid))


def _outside(case: Case, name: str, index: int) -> str:
    text = f"f: reads 4 bytes at {name}[{index}] at kernels.cu:3, past its end (…)"
    return cause_of({"kind": "out_of_bounds", "text": text, "line": 3}, case) or ""


def test_an_index_outside_is_told_by_what_it_should_count() -> None:
    merge, permute = MERGE[2], PERMUTE[2]
    assert "one element for each row" in _outside(merge, "lse_b", 3)
    assert "runs past the end" in _outside(merge, "out", 15)
    assert "the index is negative" in _outside(merge, "out_a", -5)
    assert "a vector access" in _outside(merge, "out_a", 14)
    assert "position of -1" in _outside(permute, "rows", -7)
    assert "row 5 is taken, and tokens has 5" in _outside(permute, "tokens", 36)
    assert "runs past the end" in _outside(permute, "tokens", 70)
    vocab = FORWARD[2]
    assert "not on this shard" in _outside(vocab, "logits", -102)
    assert "one element for each token" in _outside(vocab, "target", 3)
    wild = {"kind": "out_of_bounds", "text": "f: reads 4 bytes at 0x7, in no tensor, shared or …"}
    assert "belongs to no tensor" in (cause_of(wild, vocab) or "")


def _unwritten(case: Case, words: str) -> str:
    return cause_of({"kind": "unwritten", "text": f"f: no thread has written {words}"}, case) or ""


def test_unwritten_elements_are_the_tail_only_when_others_are_written() -> None:
    merge = MERGE[5]  # 17 rows of 33, <<<3, 96>>>
    assert "tail of a row of 33" in _unwritten(merge, "out[32] (17 of its 561 elements)")
    assert "only the tail" in _unwritten(merge, "out[560] (1 of its 561 elements, the last)")
    assert "the loop over the rest" in _unwritten(
        merge, "out[99:561] (462 of its 561 elements, the last)"
    )
    assert "no thread writes to `out`" in _unwritten(merge, "out[0:561] (561 of its 561 …, all)")
    assert "does not fill 16 bytes" in _unwritten(MERGE[1], "out[0] (1 of its 1 element, all)")
    dropped = next(i for i in range(33) if POSITION[3].tensors["experts"].flatten()[i] < 0)
    text = f"position[{dropped}] (4 of its 33 elements)"
    assert "a dropped assignment" in _unwritten(POSITION[3], text)


def test_left_out_tells_tail_head_and_missing_loop_apart() -> None:
    def told(begin: int, end: int, n: int, shape: tuple[int, int] = (2, 32)) -> str:
        before, expected = torch.zeros(n), torch.ones(n, dtype=torch.float64)
        got = expected.float()
        got[begin:end] = 0
        return left_out(got, before, expected, shape)[1]

    assert told(0, 3, 3) == NOTHING_CHANGED and told(0, 99, 99) == "the kernel changes nothing"
    assert told(16, 19, 19).startswith("the tail is left out (3 of 19 elements)")
    assert told(0, 3, 19).startswith("the head is left out (3 of 19 elements)")
    assert "<<<2, 32>>> does one share" in told(64, 66, 66)
    assert told(70, 99, 99) == "elements from 70 on are left out: the loop ends too early"
    assert "the first is element 5" in told(5, 9, 19)


def test_rounding_and_cutting_off() -> None:
    x = torch.tensor([1.0 + 2**-8 + 2**-10, -1.0 - 2**-8 - 2**-10], dtype=torch.float64)
    assert bf16(x).tolist() == [1.0078125, -1.0078125] and cut_off(x).tolist() == [1.0, -1.0]


def test_where_tensors_begin_is_readable() -> None:
    def words(**shifts: Any) -> str:
        return begins(**shifts)

    assert words(a=0, b=0) == "a and b begin at a multiple of 256 bytes"
    assert words(a=1, b=1) == "a and b begin 1 element after a multiple of 256 bytes"
    assert words(a=4, b=0, c=2) == (
        "a, b and c begin 4, 0 and 2 elements after a multiple of 256 bytes"
    )


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        ("killed by signal 11 (SIGSEGV)", "memory that is not the kernel's own"),
        ("2072 MiB of memory; the limit is 2048 MiB", "far more memory"),
        ("more than 1048576 bytes on stdout and stderr", "prints too much"),
        ("the process left with os._exit(0) or sys.exit before its result", "ends the process"),
        ("something else", ""),
    ],
)
def test_death_of_a_process_by_how_it_died(detail: str, told: str) -> None:
    cause = cause_of_death(detail) or ""
    assert told in cause if told else not cause
