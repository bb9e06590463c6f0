"""The fork server: ``python -m grader.harness.server --fd N``, started by WorkerServer.

It imports torch and the preload modules once, then forks one child per request.
It has one thread, never computes and never touches CUDA: forking after OpenMP or
CUDA has run leaves the child with locks that nobody will ever release.

One message on the control socket asks for one fork and carries four descriptors: call, output,
stacks, status; more are for the child itself (5, 6, … there). All that follows about this child
goes over its status socket: ``started`` and ``exit`` from here, ``stacks``, ``end`` (after the
result) and ``kill`` (with all its descendants, at once) from the examiner.
When the examiner closes that socket, or ends, the child is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import stat
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from grader.harness import processes, worker

_LOOK_SECONDS: Final = 0.03
_SWEEP_SECONDS: Final = 3.0
_MAX_MESSAGE: Final = 1 << 16
_MAX_TASKS: Final = 4096


@dataclass
class _Child:
    pid: int
    status: socket.socket
    core: int | None
    exit: dict[str, Any] | None = None
    exited_at: float = 0.0


class _Server:
    def __init__(self, control: socket.socket, private: Iterable[str]) -> None:
        """private: folders that nobody else writes to; empty outside a sandbox."""
        self._control = control
        self._private = tuple(private)
        self._littered = False
        self._examiner = os.getppid()
        self._children: dict[int, _Child] = {}
        self._cores = sorted(os.sched_getaffinity(0))
        self._next_core = 0
        self._selector = selectors.DefaultSelector()
        self._wakeup, wakeup_in = socket.socketpair()
        for end in (self._wakeup, wakeup_in):
            end.setblocking(False)
        self._wakeup_in = wakeup_in
        signal.set_wakeup_fd(wakeup_in.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._selector.register(control, selectors.EVENT_READ, None)
        self._selector.register(self._wakeup, selectors.EVENT_READ, None)
        self._next_look = 0.0

    def serve(self) -> None:
        """Answer until the examiner is gone."""
        while os.getppid() == self._examiner:
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._control:
                    if not self._fork():
                        return
                elif key.fileobj is self._wakeup:
                    with contextlib.suppress(BlockingIOError):
                        self._wakeup.recv(4096)
                else:
                    self._command(key.data)
            self._reap()
            self._sweep()

    def _patience(self) -> float:
        if any(child.exit is not None for child in self._children.values()):
            return 0.005  # a child has ended and something that it left behind has not
        return _LOOK_SECONDS if self._children else 1.0

    def _fork(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, 4 + worker.MAX_EXTRA_FDS)
        if not data:
            return False
        request = json.loads(data)
        core, cores = None, request.get("cores")
        if cores is None:
            core = self._pick_core()
            cores = [core]
        pid = os.fork()
        if pid == 0:
            kept = [*fds[:3], *fds[4:]]
            worker.main(kept, request["directory"], cores, request["file_bytes"])
        status = socket.socket(fileno=fds.pop(3))
        for fd in fds:
            os.close(fd)
        child = _Child(pid, status, core)
        child.status.setblocking(False)
        self._children[pid] = child
        self._littered = True
        self._selector.register(child.status, selectors.EVENT_READ, child)
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._tell(child, {"event": "started", "pid": pid})
        return True

    def _pick_core(self) -> int:
        """The core with the fewest children; in turn where several have as few."""
        load = dict.fromkeys(self._cores, 0)
        for child in self._children.values():
            if child.core is not None and child.exit is None:
                load[child.core] += 1
        turn = self._cores[self._next_core :] + self._cores[: self._next_core]
        core = min(turn, key=lambda candidate: load[candidate])
        self._next_core = (self._cores.index(core) + 1) % len(self._cores)
        return core

    def _tell(self, child: _Child, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the examiner has given this call up
            child.status.send(json.dumps(message).encode())

    def _command(self, child: _Child) -> None:
        try:
            command = child.status.recv(64)
        except BlockingIOError:
            return
        except OSError:
            command = b""
        if not command:
            self._selector.unregister(child.status)
        if child.exit is not None:
            return
        if command == b"stacks":
            processes.send_signal(child.pid, signal.SIGUSR1)
            return
        self._tell(child, {"event": "killing"})
        if command == b"end":  # its result is there; what it leaves behind comes to us
            processes.send_signal(child.pid, signal.SIGKILL)
        else:
            self._kill(child)

    def _kill(self, child: _Child) -> None:
        """Kill a child with all its descendants."""
        running = [other for other in self._children.values() if other.exit is None]
        if self._private and running == [child]:
            # In a process namespace of our own: all but us, at once, faster than any can fork.
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            processes.kill_tree(child.pid)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.get(pid)
            if child is not None and child.exit is None:
                child.exited_at = time.monotonic()
                child.exit = {
                    "event": "exit",
                    "status": status,
                    "cpu_seconds": usage.ru_utime + usage.ru_stime,
                    "peak_rss_bytes": usage.ru_maxrss * 1024,
                }

    def _kill_strays(self) -> bool:
        """Kill orphans that have come back to us; whether there are none."""
        running = [child.pid for child in self._children.values() if child.exit is None]
        if not running:
            try:
                if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return False
            except ChildProcessError:
                return True  # no child of any kind: the usual end, without a look at /proc
        if self._private and not running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return False
        strays = [pid for pid in processes.children(os.getpid()) if pid not in running]
        for stray in strays:
            processes.kill_tree(stray)
        return not strays

    def _sweep(self) -> None:
        """See that nothing outlives its call, and report the calls that are over."""
        now = time.monotonic()
        over = [child for child in self._children.values() if child.exit is not None]
        if not over and (not self._children or now < self._next_look):
            return
        clean = self._kill_strays()
        spent = time.monotonic() - now
        self._next_look = now + max(_LOOK_SECONDS, 10 * spent)
        if clean and self._littered and len(over) == len(self._children):
            for folder in self._private:
                empty(folder)
            self._littered = False
        for child in over:
            if clean or now - child.exited_at > _SWEEP_SECONDS:
                assert child.exit is not None
                self._tell(child, {**child.exit, "clean": clean})
                self._forget(child)

    def _forget(self, child: _Child) -> None:
        del self._children[child.pid]
        with contextlib.suppress(KeyError):
            self._selector.unregister(child.status)
        child.status.close()

    def end(self) -> None:
        """Kill all that is left."""
        for child in self._children.values():
            if child.exit is None:
                self._kill(child)
        deadline = time.monotonic() + _SWEEP_SECONDS
        while time.monotonic() < deadline:
            self._reap()
            if self._kill_strays():
                return
            self._selector.select(0.005)


def empty(folder: str) -> None:
    """Remove all that lies in a folder, but nothing that is mounted there."""
    here = os.lstat(folder).st_dev
    folders = [folder]
    for top in folders:  # those found on the way are visited too
        with contextlib.suppress(OSError):
            os.chmod(top, 0o700)
            for entry in os.scandir(top):
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if not stat.S_ISDIR(found.st_mode):
                        os.unlink(entry.path)
                    elif found.st_dev == here:
                        folders.append(entry.path)
    for each in reversed(folders[1:]):
        with contextlib.suppress(OSError):  # something is mounted below it
            os.rmdir(each)


def _preload(names: list[str]) -> dict[str, str]:
    """Import the modules; the traceback of each that could not be."""
    failed: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException:
            failed[name] = traceback.format_exc()[-4000:]
    return failed


def main() -> NoReturn:
    """Start serving on the inherited socket."""
    parser = argparse.ArgumentParser(description="Fork server of the workers.")
    parser.add_argument("--fd", type=int, required=True, help="control socket, inherited")
    control = socket.socket(fileno=parser.parse_args().fd)
    control.set_inheritable(False)
    settings = json.loads(control.recv(_MAX_MESSAGE))
    sys.path[:] = dict.fromkeys([*settings["path"], *filter(os.path.isabs, sys.path)])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (sys.stdout, sys.stderr):
        # A student's process may be killed at any time: each line must be out by then.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    processes.adopt_orphans()
    failed = _preload(
        ["torch", "torch.distributed.nn.functional", "grader.harness.codec", *settings["preload"]]
    )
    gc.collect()
    gc.freeze()
    gc.disable()
    if settings["sandboxed"]:
        processes.guard_memory(True)
        # Of this user namespace; the kernel does not hold root to it.
        resource.setrlimit(resource.RLIMIT_NPROC, (_MAX_TASKS, _MAX_TASKS))
    private = {"/tmp", "/dev/shm", settings["directory"]} if settings["sandboxed"] else ()
    server = _Server(control, filter(os.path.isdir, private))
    ready = {"event": "ready", "failed": failed, "threads": len(os.listdir("/proc/self/task"))}
    code = 0
    try:
        control.send(json.dumps(ready).encode()[:_MAX_MESSAGE])
        server.serve()
    except Exception:
        code = 1
        traceback.print_exc()
    finally:
        server.end()
        if not settings["sandboxed"]:
            shutil.rmtree(settings["directory"], ignore_errors=True)
        os._exit(code)


if __name__ == "__main__":
    main()
