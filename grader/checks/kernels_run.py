"""The examiner's hand on kernels: launches in a worker, on the CPU without a GPU, judged here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import torch

from grader.checks import workers
from grader.checks.compare import error_factor
from grader.checks.framework import CheckFailed, SolutionError, SolutionTimeout, Unimplemented
from grader.checks.kernels_causes import cause_of, is_small, nothing_written, unwritten_name
from grader.checks.kernels_suspects import VAGUE
from grader.checks.settings import Settings
from grader.harness import Limits, Reply, call_in_process
from kernels import cache, compilers, cuda_problem, native
from kernels.compilers import NoCompiler
from kernels.contracts import FILES

Mode = Literal["fast", "checked"]
Outputs = dict[str, torch.Tensor]

NOT_A_NUMBER = (
    "0 / 0, infinity - infinity, an element that was never written, or a local variable that was "
    "never set (they hold no number)"
)
#: In builds that check memory, such a variable holds -1.7e38 or a NaN.
NEVER_SET = "a local variable is read before it is set: it holds anything, here a huge number"
#: (grid, block): less threads than elements, more, odd numbers of warps, one warp.
SHAPES = ((1, 32), (3, 96), (7, 256), (2, 512))


#: Builds of sandboxed solutions, by folder, file, mode and device.
_builds: dict[tuple[str, str, str, str], dict[str, Any]] = {}


@dataclass
class Case:
    """One launch and what it must come to.

    arguments: in the order of the kernel's prototype. shifts: per argument, elements by which its
    tensor lies off a multiple of 256 bytes (default: none). judge: raises `CheckFailed` when the
    tensors that the kernel may change are wrong. label: what is special about it. not_a_number:
    from these tensors to the likely cause of a NaN where a number should be.
    """

    kernel: str
    arguments: list[torch.Tensor | int | float]
    judge: Callable[[Outputs], None]
    label: str
    shape: tuple[int, int] = (7, 256)
    shifts: Sequence[int] = ()
    shared_bytes: int = 0
    not_a_number: Callable[[Outputs], str] = lambda _: NOT_A_NUMBER

    @property
    def where(self) -> str:
        """The launch in words."""
        grid, block = self.shape
        return f"{self.kernel}<<<{grid}, {block}>>>, {self.label}"

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors among the arguments, by the names of their parameters."""
        pairs = zip(self._names(), self.arguments, strict=True)
        return {name: value for name, value in pairs if isinstance(value, torch.Tensor)}

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers among the arguments."""
        pairs = zip(self._names(), self.arguments, strict=True)
        return {name: value for name, value in pairs if not isinstance(value, torch.Tensor)}

    def shift_of(self, name: str) -> int:
        """Elements by which the tensor lies off a multiple of 256 bytes."""
        return self.shifts[self._names().index(name)] if self.shifts else 0

    def failure(self, got: Outputs) -> CheckFailed | None:
        """What `judge` raises, with the launch in front; None when it is content."""
        try:
            self.judge(got)
        except CheckFailed as failed:
            failed.message = f"{self.where}: {failed.message}"
            failed.args = (failed.message,)
            if "nan" in failed.message.split("got", 1)[-1]:
                failed.cause = self.not_a_number(got)
            elif failed.cause is None and any(_huge(tensor) for tensor in got.values()):
                failed.cause = NEVER_SET
            return failed
        return None

    def _names(self) -> list[str]:
        return [each.name for each in _contract(self.kernel).parameters]

    def call(self) -> dict[str, Any]:
        """For the worker."""
        shifts = list(self.shifts) or [0] * len(self.arguments)
        return {
            "kernel": self.kernel,
            "arguments": self.arguments,
            "shifts": shifts,
            "grid": self.shape[0],
            "block": self.shape[1],
            "shared_bytes": self.shared_bytes,
        }


@dataclass
class KernelRunner:
    """Runs kernels of the solution under test. The `kernels` fixture."""

    settings: Settings
    metrics: dict[str, Any] = field(default_factory=dict)

    def judge(self, task: str, cases: Sequence[Case], mode: Mode = "fast") -> None:
        """Launch all cases in a worker and judge each.

        Raises what the first wrong case deserves: `Unimplemented`, `SolutionError` (it does not
        compile, the worker died), `CheckFailed` (a fault or a wrong value), `SolutionTimeout`.
        """
        need_compiler()
        answer = self._launches(task, cases, mode)
        self.metrics["launches"] = self.metrics.get("launches", 0) + len(answer["outputs"])
        failed = _first_failure(cases, answer["outputs"])
        if failed is None and answer["fault"] is None:
            return
        self._unimplemented(task, cases, answer)
        if failed is not None:
            raise failed
        case, fault = self._most_telling(task, cases, answer, mode)
        metrics = {"fault": fault["kind"], "line": fault["line"]}
        cause = cause_of(fault, case)
        raise CheckFailed(f"{case.where}:\n{fault['text']}", cause=cause, metrics=metrics)

    def _launches(self, task: str, cases: Sequence[Case], mode: Mode) -> Any:
        device = self.settings.device if mode == "fast" else "cpu"
        calls = [case.call() for case in cases]
        return self._call("launches", task, {"mode": mode, "device": device, "calls": calls})

    def _most_telling(
        self, task: str, cases: Sequence[Case], answer: Any, mode: Mode
    ) -> tuple[Case, dict[str, Any]]:
        """The first fault; where a small tensor stays unwritten, that of a larger one."""
        case, fault = cases[len(answer["outputs"])], answer["fault"]
        if not nothing_written(fault, case):
            return case, fault
        name = unwritten_name(fault)
        larger = [each for each in cases if not is_small(each, name)]
        answer = self._launches(task, larger, mode)
        if answer["fault"] is None or answer["fault"]["kind"] != "unwritten":
            return case, fault
        return larger[len(answer["outputs"])], answer["fault"]

    def speed(self, task: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Measure on the GPU, in a worker: what `drivers.kernels_speed:measure` returns."""
        answer = self._call("measure", task, payload, module="kernels_speed", seconds=120.0)
        return dict(answer)

    def _call(
        self,
        function: str,
        task: str,
        payload: dict[str, Any],
        module: str = "kernels",
        seconds: float = 60.0,
    ) -> Any:
        payload = payload | {
            "folder": str(self.settings.folder),
            "file": self._file(task),
        }
        if not (self.settings.folder / payload["file"]).is_file():
            raise SolutionError(f"{payload['file']} is missing from {self.settings.folder}")
        if self.settings.sandbox:
            payload |= {"cache": None, "native": str(native.folder())}
            payload["builds"] = self._builds(task, payload)
        else:
            payload["cache"] = str(cache.cache_folder())
        return self._answer(f"grader.checks.drivers.{module}:{function}", task, payload, seconds)

    def _builds(self, task: str, payload: dict[str, Any]) -> dict[str, Any]:
        """What a sandboxed call needs built: made in the sandbox once, and kept here."""
        mode, device = payload.get("mode", "fast"), payload.get("device", self.settings.device)
        key = (payload["folder"], payload["file"], mode, device)
        if key not in _builds:
            wanted = {name: payload[name] for name in ("folder", "file", "cache", "native")}
            wanted |= {"mode": mode, "device": device}
            _builds[key] = self._answer("grader.checks.drivers.kernels:built", task, wanted, 240.0)[
                "builds"
            ]
        return _builds[key]

    def _answer(self, target: str, task: str, payload: dict[str, Any], seconds: float) -> Any:
        if self.settings.in_process:
            reply = call_in_process(target, payload, debug=self.settings.debug)
        else:
            reply = workers.server().call(target, payload, limits=Limits(wall_seconds=seconds))
        if not reply.ok:
            launched = dict.fromkeys(call["kernel"] for call in payload.get("calls", ()))
            raise _not_ok(reply, task, list(launched))
        if reply.value.get("refused"):
            raise SolutionError(
                f"{payload['file']} does not compile:\n{reply.value['refused']}",
                cause="the compiler's own message, with the line of your file",
            )
        return reply.value

    def _file(self, task: str) -> str:
        key = task.split(".")[0]
        return next(f"{name}/kernels.cu" for name in FILES if name.split("_")[0] == key)

    def _unimplemented(self, task: str, cases: Sequence[Case], answer: Any) -> None:
        """A stub: its mark is still there, and no launch had any effect."""
        text = (self.settings.folder / self._file(task)).read_text(errors="replace")
        if f"TODO({task})" not in text:
            return
        fault = answer["fault"]
        if fault is not None and fault["kind"] != "unwritten":
            return
        for case, outputs in zip(cases, answer["outputs"], strict=False):
            before = case.tensors
            if not all(_equal(before[name], value) for name, value in outputs.items()):
                return
        raise Unimplemented(f"{task} is not implemented yet")


@pytest.fixture
def kernels(
    request: pytest.FixtureRequest, settings: Settings, metrics: dict[str, Any]
) -> KernelRunner:
    """Runs kernels of the solution under test in workers."""
    # Now, not when its turn comes: after a kernel that does not end it would not be reached.
    if (problem := speed_problem(settings)) is not None:
        for item in request.session.items:
            if "speed" in item.name and item.path == request.node.path:
                item.add_marker(pytest.mark.skip(reason=problem))
    return KernelRunner(settings, metrics)


def speed_problem(settings: Settings) -> str | None:
    """Why the speed of kernels is not measured; None when it is."""
    if not settings.throughput:
        return "throughput is not measured (--no-throughput)"
    if settings.device != "cuda":
        return cuda_problem() or "speed is measured with --device cuda only"
    return cuda_problem()


def need_compiler() -> None:
    """Skip the check when kernels cannot be built here; else build the kit's part now."""
    try:
        compilers.cxx()
        native.folder()
    except native.BuildFailed:
        raise  # a fault of the kit must not pass for a machine without a compiler
    except (NoCompiler, native.NotBuilt) as problem:
        pytest.skip(str(problem))


def mixed(
    dtype: torch.dtype, expected: torch.Tensor, scale: torch.Tensor, operations: int
) -> dict[str, Any]:
    """Arguments of `assert_close` for a result computed in float and rounded to `dtype` once.

    expected, scale: float64; `operations` roundings in float32 of numbers that add up to `scale`.
    """
    if dtype == torch.float32:
        return {"dtype": dtype, "operations": operations, "scale": scale}
    within = scale * error_factor(torch.float32, operations)
    whole = expected.abs() + within / error_factor(dtype, 1) + within
    return {"dtype": dtype, "operations": 1, "scale": whole}


def normal(rng: torch.Generator, *size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal random numbers, rounded to `dtype`."""
    return torch.randn(*size, generator=rng).to(dtype)


def counted(n: int, noun: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def begins(**shifts: int) -> str:
    """Where tensors lie: "dst and src begin 3 and 2 elements after a multiple of 256 bytes"."""
    names = " and ".join(", ".join(shifts).rsplit(", ", 1))
    if len(set(shifts.values())) > 1:
        numbers = " and ".join(", ".join(map(str, shifts.values())).rsplit(", ", 1))
        return f"{names} begin {numbers} elements after a multiple of 256 bytes"
    shift = next(iter(shifts.values()))
    after = f"{counted(shift, 'element')} after" if shift else "at"
    return f"{names} begin {after} a multiple of 256 bytes"


def suffix(dtype: torch.dtype) -> str:
    """ "fp32" or "bf16", as in the names of kernels."""
    return "fp32" if dtype == torch.float32 else "bf16"


def _first_failure(cases: Sequence[Case], outputs: Sequence[Outputs]) -> CheckFailed | None:
    """What the first wrong case deserves, or a later one where it leaves several faults open."""
    first = None
    for case, got in zip(cases, outputs, strict=False):
        failed = case.failure(got)
        if failed is None:
            continue
        if failed.cause not in VAGUE and (first is None or failed.cause is not None):
            return failed
        first = first or failed
    return first


def _huge(tensor: torch.Tensor) -> bool:
    """Whether a number is as large as those that builds with checks fill local variables with."""
    return tensor.is_floating_point() and bool((tensor.abs() > 1e38).any())


def _contract(kernel: str) -> Any:
    return next(each for file in FILES.values() for each in file if each.name == kernel)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(
        a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8)
    )


def _not_ok(reply: Reply, task: str, kernels: Sequence[str]) -> CheckFailed | RuntimeError:
    tail = f"\nIt printed:\n{reply.output[-800:].rstrip()}" if reply.output.strip() else ""
    if reply.status == "timeout":
        return SolutionTimeout(
            f"{' or '.join(kernels) or task} did not end: {reply.detail}{tail}",
            cause="a loop that never ends, or threads that wait for a value nobody writes",
        )
    if reply.status == "raised" and reply.error is not None:
        return RuntimeError(f"{reply.error.type}: {reply.error.message}\n{reply.error.traceback}")
    return SolutionError(
        f"{task} ended its process: {reply.detail}{tail}", cause=cause_of_death(reply.detail)
    )


def cause_of_death(detail: str) -> str | None:
    """The likely cause of the end of a process, by how it ended."""
    if "signal" in detail:
        return "memory that is not the kernel's own was written: see the check of memory accesses"
    if "of memory" in detail:
        return "the file needs far more memory than its tensors: a kernel allocates nothing"
    if "on stdout" in detail:
        return "the kernel prints too much: let one thread print, and only a few values"
    if "exit" in detail:
        return "the file ends the process it runs in: a kernel has nothing to end"
    return None
