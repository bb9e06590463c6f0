"""What runs in the forked child: set it apart, read one call, run it, send one result."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import importlib
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Any, Final, NoReturn

from grader.harness import frames, processes, words

CALL_FD: Final = 3
STACKS_FD: Final = 4
EXTRA_FD: Final = 5
"""The first of the descriptors that a world gives to its ranks beside those of a call."""
MAX_EXTRA_FDS: Final = 2
EXIT_NO_CHANNEL: Final = 86
"""Exit code of a worker that could not send its result."""
_MAX_FRAMES: Final = 64
_MAX_FDS: Final = 4096

_exit = os._exit  # student code may put something else in its place

_progress: Callable[[object], None] | None = None


def send_progress(value: object) -> None:
    """Hand a value to the ``progress`` callback of the call that runs; kept even if it dies.

    Does nothing outside a call or when the caller did not ask for progress.
    """
    if _progress is not None:
        _progress(value)


@contextlib.contextmanager
def progress_to(sink: Callable[[Any], None] | None) -> Iterator[None]:
    """Hand the values of ``send_progress`` to ``sink`` while the block runs, in this process."""
    global _progress
    before, _progress = _progress, sink
    try:
        yield
    finally:
        _progress = before


def resolve(target: str) -> Callable[[Any], Any]:
    """Import ``package.module:function``.

    Raises:
        ValueError: the target is not of that form.
        ImportError, AttributeError: there is no such module or function.
    """
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"expected 'package.module:function', got {target!r}")
    found: Any = importlib.import_module(module)
    for name in attribute.split("."):
        found = getattr(found, name)
    function: Callable[[Any], Any] = found
    return function


def _name_of(kind: type) -> str:
    module = str(kind.__module__)
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def describe(error: BaseException, skip: int) -> dict[str, Any]:
    """An exception as data, without its ``skip`` outermost frames (ours)."""
    where: TracebackType | None = error.__traceback__
    for _ in range(skip):
        where = where.tb_next if where is not None and where.tb_next is not None else where
    try:
        message = words.clipped(str(error))
        text = words.clipped("".join(traceback.format_exception(type(error), error, where)))
    except Exception:  # the exception's own __str__ may be broken
        message, text = "(the exception could not be shown)", "".join(traceback.format_tb(where))
    steps = [[step.filename, step.lineno or 0, step.name] for step in traceback.extract_tb(where)][
        -_MAX_FRAMES:
    ]
    return {
        "type": words.name(_name_of(type(error))),
        "message": message,
        "traceback": text,
        "frames": steps,
        "bases": words.names([_name_of(base) for base in type(error).__mro__[1:-1]]),
    }


def run(target: str, payload: object, given: Collection[str], max_nbytes: int) -> dict[str, Any]:
    """Run a call; returns the result message, with the bytes of its data under ``blob``."""
    from grader.harness.codec import encode

    try:
        value = resolve(target)(payload)
    except (SystemExit, KeyboardInterrupt) as error:
        return {"status": "left", "error": describe(error, 1)}
    except BaseException as error:
        return {"status": "raised", "error": describe(error, 1)}
    try:
        tree, blob = encode(value, given=given, name="result", max_nbytes=max_nbytes)
    except Exception as error:
        return {"status": "raised", "error": describe(error, 1)}
    return {"status": "ok", "tree": tree, "blob": blob}


def main(fds: list[int], directory: str, cores: list[int], file_bytes: int) -> NoReturn:
    """Be the worker, on ``fds`` (call, output, stacks, extra ones); never returns."""
    code = 1
    try:
        _set_apart(fds, directory, cores, file_bytes)
        code = _serve()
    except BaseException:
        traceback.print_exc()
    finally:
        _exit(code)


def _set_apart(fds: list[int], directory: str, cores: list[int], file_bytes: int) -> None:
    server = os.getppid()
    os.setsid()
    processes.die_with_parent()
    if os.getppid() != server:
        _exit(1)  # the server ended before it could be tied to us
    processes.forbid_privileges()
    processes.guard_memory(False)  # the server may have guarded its own: /proc/self must be ours
    # Received descriptors may lie anywhere: move them out of the way of their final places.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in fds]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(high[1], 1)
    os.dup2(high[1], 2)
    os.dup2(high[0], CALL_FD, inheritable=False)
    os.dup2(high[2], STACKS_FD, inheritable=False)
    for place, extra in enumerate(high[3:], start=EXTRA_FD):
        os.dup2(extra, place, inheritable=False)
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= EXTRA_FD + len(high[3:]):
            with contextlib.suppress(OSError):  # the one that listed them is closed already
                os.close(int(name))
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=STACKS_FD, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    _lower(resource.RLIMIT_NOFILE, _MAX_FDS)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when the machine runs out of memory: us first, not the examiner
    if cores:
        os.sched_setaffinity(0, cores)
    os.makedirs(directory, exist_ok=True)  # in a sandbox the examiner's folders do not exist
    os.chdir(directory)
    os.environ.update(HOME=directory, TMPDIR=directory, PWD=directory)
    tempfile.tempdir = None
    sys.argv = ["worker"]
    gc.enable()
    import torch

    torch.set_num_threads(1)


def _lower(kind: int, limit: int) -> None:
    """Set a limit for good, unless there is a lower one."""
    _, hard = resource.getrlimit(kind)
    lowest = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (lowest, lowest))


def _serve() -> int:
    global _progress
    from grader.harness.codec import decode, encode

    channel = socket.socket(fileno=CALL_FD)
    own_pid, streams = os.getpid(), (sys.stdout, sys.stderr)
    call, blob = frames.receive(channel)
    lock = threading.Lock()

    def send(message: dict[str, Any], data: bytes) -> None:
        with lock:
            frames.send(channel, {"token": call["token"], **message}, data)

    def progress(value: object) -> None:
        tree, data = encode(value, name="progress", max_nbytes=call["result_bytes"])
        send({"kind": "progress", "tree": tree}, data)

    if call["progress"]:
        _progress = progress
    payload = decode(call["tree"], blob, name="payload", max_nbytes=2**62)
    del blob
    result = run(call["target"], payload, call["given"], call["result_bytes"])
    if os.getpid() != own_pid:
        _exit(0)  # a process that the student forked, which came back up through our frames
    for stream in (*streams, sys.stdout, sys.stderr):
        _flush(stream)
    data = result.pop("blob", b"")
    try:
        send({"kind": "result", **result}, data)
    except OSError:
        return EXIT_NO_CHANNEL
    except frames.FrameError as error:
        send({"kind": "result", "status": "raised", "error": describe(error, 0)}, b"")
    if call.get("hold"):
        channel.recv(1)  # other ranks may still need this one: the examiner ends it
    return 0


def _flush(stream: Any) -> None:
    # Closed or replaced by the student: what it still held is lost, the result counts.
    with contextlib.suppress(Exception):
        stream.flush()
