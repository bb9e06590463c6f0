"""The sandbox: bubblewrap around a fork server, so around all the code that its workers run.

Inside there is no network but a loopback of its own, no process but the server's, a system that
can only be read, nothing of anybody's home, and a small private /tmp that goes with it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import shutil
import signal
import site
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from grader.harness import processes, sandbox_filter
from grader.harness.sandbox_cgroup import Cgroup

PROGRAM: Final = "bwrap"
_KIT: Final = Path(__file__).resolve().parents[2]
USER: Final = 1000
"""Who the code inside is, by number."""
_END_SECONDS: Final = 5.0
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
_OF_ETC: Final = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
_FILES: Final = {
    "/etc/passwd": f"student:x:{USER}:{USER}:student:/tmp:/bin/sh\n",
    "/etc/group": f"student:x:{USER}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
}
_APART: Final = (
    "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
    "--unshare-cgroup-try", "--hostname", "sandbox", "--uid", str(USER), "--gid", str(USER),
    "--new-session", "--die-with-parent", "--cap-drop", "ALL",
)  # fmt: skip

# The kernel ends a sandbox with the *thread* that started it: one that lives as long as we do.
_launcher = ThreadPoolExecutor(1, thread_name_prefix="sandbox")


class SandboxUnavailable(RuntimeError):
    """There can be no sandbox here; the message says why."""


@dataclass(frozen=True)
class Sandbox:
    """What code inside sees, and how much it may use in all.

    visible: files and folders that it can read, beside the system and the interpreter.
    disk_bytes: of /tmp; shm_bytes: of /dev/shm; files: in both together.
    memory_bytes, processes: of everything inside, where this user may make cgroups; each call's
    own limits hold everywhere. numbers: of processes and threads inside (see `_bound_numbers`):
    a bomb gets no further, however slow the watchdog is.
    """

    visible: tuple[str, ...] = ()
    disk_bytes: int = 512 << 20
    shm_bytes: int = 64 << 20
    files: int = 20_000
    memory_bytes: int = 12 << 30
    processes: int = 512
    numbers: int = 2048


def unavailable() -> str | None:
    """Why there can be no sandbox here; `None` when there can."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux; this is {sys.platform}"
    found = shutil.which(PROGRAM)
    if found is None:
        return "bubblewrap is not installed (Debian, Ubuntu: apt install bubblewrap)"
    return _trial(found)


@functools.cache
def _trial(program: str) -> str | None:
    arguments = [program, *_APART, *_view(Sandbox(), "/tmp"), "true"]
    try:
        tried = subprocess.run(
            arguments, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here: {error}"
    if tried.returncode == 0:
        return None
    words = " ".join(tried.stderr.split())[-300:]
    namespaces = ("user namespace", "new namespace", "uid map", "NEWUSER")
    if any(telling in words for telling in namespaces):
        return f"this machine forbids user namespaces, which bubblewrap needs ({words})"
    return f"bubblewrap does not work here: {words or f'exit status {tried.returncode}'}"


def _view(sandbox: Sandbox, directory: str) -> list[str]:
    """The options that make up what is seen inside; later ones lie over earlier ones."""
    view: list[str] = []
    for path in _SYSTEM:
        if os.path.islink(path):
            view += ["--symlink", os.readlink(path), path]
        else:
            view += ["--ro-bind-try", path, path]
    for name in _OF_ETC:
        view += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    # The machine's settings belong to its root, whom the kernel may take the code inside for.
    view += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    view += ["--ro-bind-try", "/proc/sysrq-trigger", "/proc/sysrq-trigger"]
    view += ["--size", str(sandbox.shm_bytes), "--tmpfs", "/dev/shm"]
    for device in sorted(Path("/dev").glob("nvidia*")):
        view += ["--dev-bind-try", str(device), str(device)]
    view += ["--ro-bind-try", "/sys/devices/system", "/sys/devices/system"]
    view += ["--size", str(sandbox.disk_bytes), "--tmpfs", "/tmp"]
    if not Path(directory).is_relative_to("/tmp"):
        view += ["--size", str(sandbox.disk_bytes), "--tmpfs", directory]
    for path in (*_interpreter(), str(_KIT / "grader"), *sandbox.visible):
        view += ["--ro-bind", path, path]
    # These hold nothing, but could be filled.
    return [*view, "--remount-ro", "/dev", "--remount-ro", "/"]


def _interpreter() -> list[str]:
    """Folders of this interpreter and of the packages that it finds, beside the system's."""
    folders = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    folders += site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    kept: list[str] = []
    for folder in map(os.path.realpath, folders):
        inside = [*kept, "/usr"]
        if os.path.isdir(folder) and not any(Path(folder).is_relative_to(up) for up in inside):
            kept.append(folder)
    return kept


@dataclass
class Running:
    """A sandbox that runs, from outside."""

    process: subprocess.Popen[bytes]
    sandbox: Sandbox
    cgroup: Cgroup | None = None
    _first: int = field(default=0)

    def locate(self, inner: int) -> int:
        """Our number of the process that is `inner` inside; 0 when there is none."""
        for pid in processes.tree(self.process.pid):
            numbers = processes.numbers(pid)
            if len(numbers) > 1 and numbers[-1] == inner:
                return pid
        return 0

    def overfull(self) -> str | None:
        """What is wrong when there are more files inside than there may be."""
        used = 0
        for place in ("tmp", "dev/shm"):
            with contextlib.suppress(OSError):
                status = os.statvfs(f"/proc/{self.first_pid()}/root/{place}")
                used += status.f_files - status.f_ffree
        if used <= self.sandbox.files:
            return None
        return f"{used} files at once; the limit is {self.sandbox.files}"

    def first_pid(self) -> int:
        """Our number of the first process inside, with which all others end."""
        if not self._first:
            self._first = self.locate(1)
        return self._first

    def end(self) -> None:
        """Kill everything inside, at once, and see it gone."""
        first = self.first_pid()
        self.process.kill()
        if self.cgroup is not None:
            self.cgroup.end()
        deadline = time.monotonic() + _END_SECONDS
        while first and processes.runs(first) and time.monotonic() < deadline:
            processes.send_signal(first, signal.SIGKILL)
            time.sleep(0.005)
        self.process.wait()


def launch(
    sandbox: Sandbox, program: Sequence[str], directory: str, *, cwd: str, **options: Any
) -> Running:
    """Start `program` inside. directory: where it may write; options: those of `Popen`.

    Raises `SandboxUnavailable`.
    """
    reason = unavailable()
    if reason is not None:
        raise SandboxUnavailable(reason)
    cgroup = Cgroup.make(sandbox.memory_bytes, sandbox.processes)
    with contextlib.ExitStack() as stack:
        passed: list[int] = list(options.pop("pass_fds", ()))
        told: list[str] = []
        for place, text in _FILES.items():
            told += ["--ro-bind-data", _handed(stack, passed, text.encode()), place]
        if rules := sandbox_filter.program():
            told += ["--seccomp", _handed(stack, passed, rules)]
        command = [PROGRAM, *_APART, *told, *_view(sandbox, directory), "--chdir", cwd, *program]
        if cgroup is not None:
            command = cgroup.started(command)

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, pass_fds=passed, cwd="/", **options)

        process = _launcher.submit(start).result()
    running = Running(process, sandbox, cgroup)
    _bound_numbers(running)
    return running


def bounds_numbers() -> bool:
    """Whether `Sandbox.numbers` holds here, even without a control group."""
    if os.geteuid() != 0:
        return True
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    new = version is not None and tuple(map(int, version.groups())) >= (6, 14)
    return new and shutil.which("nsenter") is not None


def _bound_numbers(running: Running) -> None:
    """Let there be no more processes and threads inside than `Sandbox.numbers`.

    RLIMIT_NPROC counts those of one user in one user namespace, and does not hold for root; for
    root a process namespace has only so many numbers. That is so since Linux 6.14: before, it is
    the whole machine's setting, and is left alone.
    """
    deadline = time.monotonic() + _END_SECONDS
    while not (first := running.first_pid()) and time.monotonic() < deadline:
        if running.process.poll() is not None:
            return
        time.sleep(0.002)
    most = running.sandbox.numbers
    if os.geteuid() != 0:
        for pid in processes.tree(first):
            with contextlib.suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_NPROC, (most, most))
        return
    if not bounds_numbers():
        return
    subprocess.run(
        ["nsenter", "--target", str(first), "--pid", "--", "/bin/sh", "-c",
         'echo "$0" > /proc/sys/kernel/pid_max', str(most)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        timeout=_END_SECONDS, check=False,
    )  # fmt: skip


def _handed(stack: contextlib.ExitStack, passed: list[int], data: bytes) -> str:
    """A descriptor to read `data` from, until the stack closes."""
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    passed.append(descriptor)
    return str(descriptor)
