"""``WorkerServer``: calls that run in fresh forks of a warm process."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from grader.harness import processes, worker
from grader.harness.call import Call, ServerLost
from grader.harness.directories import remove_directory
from grader.harness.reply import Limits, Reply, failure, raised_error
from grader.harness.sandbox import Running, Sandbox, launch

_KIT: Final = Path(__file__).resolve().parents[2]
_READY_SECONDS: Final = 180.0
_ATTEMPTS: Final = 3
_MARK: Final = "TINYPARALLEL_WORKER"
# fmt: off
_KEPT_ENVIRONMENT: Final = (
    "PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CC", "CXX",
    "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
)
# fmt: on

_T = TypeVar("_T")
Progress = Callable[[Any], None]
Build = Callable[[str, dict[str, Any]], Any]


class WorkerServerError(RuntimeError):
    """The fork server cannot be started; the message holds its own words."""


def _environment(extra: Mapping[str, str], mark: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_ENVIRONMENT or name.startswith("LC_")
    }
    # Thread pools that a library starts at import would make the server multi-threaded.
    single = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
    return {**kept, **single, "PYTHONDONTWRITEBYTECODE": "1", **extra, _MARK: mark}


class _Server:
    """One server process and the examiner's end of its control socket."""

    def __init__(
        self, preload: list[str], path: list[str], env: Mapping[str, str], sandbox: Sandbox | None
    ) -> None:
        self.mark = secrets.token_hex(16)
        self.running: Running | None = None
        self.directory = tempfile.mkdtemp(prefix="tinyparallel-")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = [sys.executable, "-m", "grader.harness.server"]
        with theirs:
            program += ["--fd", str(theirs.fileno())]
            options: dict[str, Any] = {
                "pass_fds": [theirs.fileno()],
                "cwd": str(_KIT),
                "env": _environment(env, self.mark),
                "stdin": subprocess.DEVNULL,
                "stdout": self._log,
                "stderr": self._log,
                "start_new_session": True,
            }
            if sandbox is None:
                self._process = subprocess.Popen(program, **options)
            else:
                self.running = launch(sandbox, program, self.directory, **options)
                self._process = self.running.process
        settings: dict[str, Any] = {
            "preload": preload,
            "path": path,
            "directory": self.directory,
            "sandboxed": sandbox is not None,
        }
        with contextlib.suppress(BrokenPipeError):  # it died at once: ready() will say so
            self._control.send(json.dumps(settings).encode())
        self._lock = threading.Lock()
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def ready(self) -> None:
        """Wait until it has imported all it should.

        Raises:
            WorkerServerError: a module cannot be imported, or the server ended or hangs.
            ServerLost: something killed it.
        """
        with self._lock:
            if self._ready:
                return
            self._control.settimeout(_READY_SECONDS)
            try:
                data = self._control.recv(1 << 16)
            except OSError:  # killed, or no word within its time
                data = b""
            if not data:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    if self._process.wait(1.0) < 0:
                        raise ServerLost(f"killed by signal {-self._process.returncode}")
                raise WorkerServerError(f"the worker server did not start:\n{self._words()}")
            failed = json.loads(data)["failed"]
            if failed:
                words = "\n".join(f"{name}:\n{text}" for name, text in failed.items())
                raise WorkerServerError(f"the worker server could not import {words}")
            self._control.settimeout(5.0)
            if self.running is not None:
                self.running.first_pid()
            self._ready = True

    def _words(self) -> str:
        if self._log.closed:
            return ""
        self._log.seek(0)
        return self._log.read()[-4000:].decode("utf-8", errors="replace")

    def request(self, message: bytes, fds: list[int]) -> None:
        with self._lock:
            try:
                socket.send_fds(self._control, [message], fds)
            except OSError as error:  # gone, stopped, or closed by another thread
                raise ServerLost(str(error)) from error

    def end(self, patience: float) -> None:
        """Close it, kill it after ``patience`` seconds, and see that nothing is left."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        if self.running is not None:
            self.running.end()  # and with it all that was inside
        else:
            self._kill_all()
        self._log.close()
        remove_directory(self.directory)

    def _kill_all(self) -> None:
        self._process.kill()
        self._process.wait()
        deadline = time.monotonic() + 5.0
        while processes.kill_marked(f"{_MARK}={self.mark}") and time.monotonic() < deadline:
            time.sleep(0.005)  # killed processes take a moment to go


class WorkerServer:
    """Runs functions in forks of a warm process; started at once, ready when first needed.

    Args:
        preload: modules that the server imports beside torch. They must not compute, start
            threads or touch CUDA at import.
        path: folders that the workers look for modules in, before the interpreter's own; the
            examiner's ``sys.path`` by default.
        env: variables for the workers beside PATH, LANG and the like. Nothing else of the
            examiner's environment reaches them.
        sandbox: run the server, and so all workers, in one. Raises SandboxUnavailable.

    Safe to use from several threads. Starts a new server when the old one has died.
    """

    def __init__(
        self,
        preload: Iterable[str] = (),
        *,
        path: Iterable[str | Path] | None = None,
        env: Mapping[str, str] | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        entries = sys.path if path is None else path
        self._path = list(dict.fromkeys([str(_KIT), *(os.path.abspath(p) for p in entries)]))
        self._preload = list(preload)
        self._env = dict(env or {})
        self._sandbox = sandbox
        self._lock = threading.Lock()
        self._closed = False
        self._server = self._start()

    def _start(self) -> _Server:
        return _Server(self._preload, self._path, self._env, self._sandbox)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the server that runs now."""
        return self._server.pid

    def wait_ready(self) -> None:
        """Wait until the server is warm.

        Raises:
            WorkerServerError: it cannot be started, or a preload module not imported.
        """
        self.lend(_Server.ready)

    def lend(self, use: Callable[[_Server], _T]) -> _T:
        """Use a server that answers; start another one, a few times, when it is lost."""
        reason = ""
        for _ in range(_ATTEMPTS):
            server = self._current()
            try:
                return use(server)
            except ServerLost as error:
                reason = str(error)
                self.replace(server)
        raise WorkerServerError(f"the worker server was lost {_ATTEMPTS} times: {reason}")

    def _current(self) -> _Server:
        with self._lock:
            if self._closed:
                raise WorkerServerError("this WorkerServer is closed")
            if not self._server.alive():
                self._server.end(0.0)
                self._server = self._start()
            return self._server

    def replace(self, lost: _Server) -> None:
        """Start another server in the place of one that was lost."""
        with self._lock:
            if self._server is lost and not self._closed:
                lost.end(0.1)
                self._server = self._start()

    def call(
        self,
        target: str,
        payload: object = None,
        *,
        limits: Limits | None = None,
        progress: Progress | None = None,
        given: Collection[str] = (),
        build: Build | None = None,
    ) -> Reply:
        """Run ``target`` ("package.module:function") on ``payload`` in a fresh process.

        Args:
            payload: what ``codec.encode`` takes; instances of ``codec.Given`` arrive as such.
            progress: called here with each value that the function hands to ``send_progress``.
            given: full names of dataclasses that the function may return.
            build: makes these from name and fields; ``Given`` without it.

        Whatever the code does is told by the reply; no process of the call is left.

        Raises:
            EncodeError: the payload cannot be sent.
            WorkerServerError: the server cannot be started.
        """
        from grader.harness.codec import encode

        tree, blob = encode(payload, name="payload")
        message = {"target": target, "tree": tree, "given": list(given)}

        def attempt(server: _Server) -> Reply:
            server.ready()
            call = Call(
                server.request,
                server.directory,
                message,
                blob,
                limits or Limits(),
                progress,
                build,
                sandbox=server.running,
            )
            reply = call.run()
            if call.server_lost:
                self.replace(server)
            return reply

        return self.lend(attempt)

    def close(self) -> None:
        """End the server and all calls. Safe to call twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._server.end(5.0)


def call_in_process(
    target: str,
    payload: object = None,
    *,
    debug: bool = False,
    progress: Progress | None = None,
    given: Collection[str] = (),
    build: Build | None = None,
) -> Reply:
    """Run ``target`` here, with the same reply: for a debugger, never for grading.

    Values pass through the codec as they would between processes. Nothing is limited and
    output is not captured. With ``debug`` the exceptions of the code come through.

    Raises:
        EncodeError: the payload cannot be sent.
    """
    from grader.harness.codec import decode, encode

    tree, blob = encode(payload, name="payload")
    copied = decode(json.loads(json.dumps(tree)), blob, name="payload")
    began = time.monotonic()
    with worker.progress_to(progress):
        if debug:
            value = worker.resolve(target)(copied)
            tree, blob = encode(value, given=given, name="result")
            result: dict[str, Any] = {"status": "ok", "tree": tree, "blob": blob}
        else:
            result = worker.run(target, copied, given, Limits().result_bytes)
    seconds = time.monotonic() - began
    if result["status"] == "ok":
        value = decode(result["tree"], result["blob"], build=build, name="result")
        return Reply("ok", value, seconds=seconds, pid=os.getpid())
    error = raised_error(result["error"])
    status, detail = failure(result["status"], error)
    return Reply(status, error=error, detail=detail, seconds=seconds, pid=os.getpid())
