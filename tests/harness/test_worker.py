"""Whatever a student's code does to its worker is a result, and the next call works."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.harness import (
    EncodeError,
    Given,
    Limits,
    Reply,
    WorkerServer,
    WorkerServerError,
    call_in_process,
)

TARGETS = "tests.harness.targets"
KIT = Path(__file__).resolve().parents[2]
SHORT = Limits(wall_seconds=0.4)


@pytest.fixture(scope="module")
def shared() -> Iterator[WorkerServer]:
    with WorkerServer(preload=[TARGETS], path=[KIT]) as server:
        server.wait_ready()
        yield server


@pytest.fixture
def server(shared: WorkerServer) -> Iterator[WorkerServer]:
    """A server that, after each test, must still answer and have nothing left below it."""
    yield shared
    reply = shared.call(f"{TARGETS}:echo", "still there")
    assert (reply.status, reply.value) == ("ok", "still there"), reply
    assert children(shared.pid) == []


def children(pid: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(name))
    return found


def gone(pid: int) -> bool:
    """Whether the process has ended (it may wait to be reaped by init)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def call(server: WorkerServer, name: str, payload: object = None, **options: Any) -> Reply:
    return server.call(f"{TARGETS}:{name}", payload, **options)


def test_value_comes_back_with_its_aliasing(server: WorkerServer) -> None:
    base = torch.arange(12.0)
    reply = call(server, "echo", {"a": base[2:8:2], "b": base, 3: (1, None)})
    assert reply.ok
    assert torch.equal(reply.value["a"], base[2:8:2])
    assert reply.value["a"].stride() == (2,)
    reply.value["b"].zero_()
    assert torch.equal(reply.value["a"], torch.zeros(3))
    assert reply.value[3] == (1, None)


def test_code_runs_in_another_process_and_leaves_this_one_alone(server: WorkerServer) -> None:
    before = set(sys.modules)
    first, second = call(server, "pid"), call(server, "pid")
    assert len({os.getpid(), server.pid, first.value, second.value}) == 4
    assert first.pid == first.value
    assert call(server, "mutate_the_world").ok
    assert set(sys.modules) == before
    assert "STUDENT_WAS_HERE" not in os.environ
    assert torch.manual_seed is not None


def test_worker_is_set_apart(server: WorkerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = call(server, "surroundings")
    seen = reply.value
    assert seen["cwd"] == seen["tmp"] == seen["environment"]["HOME"] != os.getcwd()
    assert not Path(seen["cwd"]).exists()
    assert (seen["cores"], seen["threads"], seen["stdin"], seen["leader"]) == (1, 1, "", True)
    assert seen["fds"][:5] == [0, 1, 2, 3, 4]
    assert len(seen["fds"]) == 6  # and the one that lists them


def test_secrets_of_the_examiner_do_not_reach_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMINER_SECRET", "sesame")
    with WorkerServer(path=[KIT], env={"EXTRA": "yes"}) as server:
        seen = call(server, "surroundings").value["environment"]
    assert "EXAMINER_SECRET" not in seen
    assert (seen["EXTRA"], seen["PATH"]) == ("yes", os.environ["PATH"])


def test_server_has_one_thread_so_that_children_can_compute(server: WorkerServer) -> None:
    assert len(os.listdir(f"/proc/{server.pid}/task")) == 1
    reply = call(server, "big_matmul", 300)
    assert reply.ok and float(reply.value[0, 0]) == 300.0


def test_output_is_captured(server: WorkerServer, capfd: pytest.CaptureFixture[str]) -> None:
    reply = call(server, "print_lines", 3)
    assert reply.output == "line 0\nline 1\nline 2\nto stderr\n"
    assert capfd.readouterr() == ("", "")


def test_segmentation_fault(server: WorkerServer) -> None:
    reply = call(server, "segfault")
    assert reply.status == "died"
    assert reply.detail == "killed by SIGSEGV (segmentation fault)"
    assert reply.output.startswith("about to fall\n")
    assert "targets.py" in reply.output  # faulthandler names the line


@pytest.mark.parametrize("name", ["leave", "leave_from_thread"])
@pytest.mark.parametrize("code", [0, 3])
def test_leaving_without_a_result(server: WorkerServer, name: str, code: int) -> None:
    reply = call(server, name, code)
    assert reply.status == "died"
    assert reply.detail == f"the process left with os._exit({code}) or sys.exit before its result"


@pytest.mark.parametrize(
    "name, kind", [("system_exit", "SystemExit"), ("interrupt", "KeyboardInt")]
)
def test_system_exit_is_no_result(server: WorkerServer, name: str, kind: str) -> None:
    reply = call(server, name)
    assert reply.status == "died"
    assert kind in reply.detail
    assert reply.error is not None and reply.error.frames[-1].function == name


def test_exception_comes_as_data(server: WorkerServer) -> None:
    reply = call(server, "fail", "a2.ring_all_reduce")
    assert (reply.status, reply.detail) == ("raised", "NotImplementedError: a2.ring_all_reduce")
    assert reply.error is not None
    assert reply.error.type == "NotImplementedError"
    assert reply.error.message == "a2.ring_all_reduce"
    assert "RuntimeError" in reply.error.bases
    assert reply.error.frames[-1].file.endswith("targets.py")
    assert "raise NotImplementedError(message)" in reply.error.traceback
    assert "grader/harness" not in reply.error.traceback


def test_exception_that_cannot_be_shown(server: WorkerServer) -> None:
    reply = call(server, "fail_without_words")
    assert reply.status == "raised"
    assert reply.error is not None and reply.error.type == f"{TARGETS}.BrokenError"


def test_missing_module_and_function(server: WorkerServer) -> None:
    assert server.call("no.such.module:f").detail.startswith("ModuleNotFoundError")
    assert call(server, "no_such_function").detail.startswith("AttributeError")


@pytest.mark.parametrize("name", ["python_loop", "c_loop", "c_pause"])
def test_hang_is_ended_with_its_stack(server: WorkerServer, name: str) -> None:
    reply = call(server, name, limits=SHORT)
    assert (reply.status, reply.detail) == ("timeout", "no result within 0.4 seconds")
    assert f"in {name}" in reply.stacks
    assert gone(reply.pid)


def test_stopped_process_is_ended(server: WorkerServer) -> None:
    reply = call(server, "stop_oneself", limits=SHORT)
    assert reply.status == "timeout"
    assert gone(reply.pid)


def test_output_flood(server: WorkerServer) -> None:
    reply = call(server, "flood", limits=Limits(output_bytes=100_000))
    assert reply.status == "flood"
    assert reply.output.startswith("the beginning\n")
    assert "bytes left out" in reply.output
    assert len(reply.output) < 101_000


@pytest.mark.parametrize("name", ["memory_bomb", "memory_of_children"])
def test_memory_bomb(server: WorkerServer, name: str) -> None:
    reply = call(server, name, limits=Limits(memory_bytes=512 << 20))
    assert reply.status == "memory"
    assert "the limit is 512 MiB" in reply.detail


def test_fork_bomb(server: WorkerServer) -> None:
    reply = call(server, "fork_bomb", limits=Limits(processes=8))
    assert reply.status == "died"
    assert "processes at once; the limit is 8" in reply.detail


def test_process_that_hops_from_fork_to_fork_is_caught(server: WorkerServer) -> None:
    assert call(server, "hop").status == "died"
    assert children(server.pid) == []


def test_orphans_do_not_outlive_their_call(server: WorkerServer, tmp_path: Path) -> None:
    where = tmp_path / "pid"
    assert call(server, "leave_orphans", str(where)).ok
    assert gone(int(where.read_text()))


def test_fork_that_returns_twice_gives_one_result(server: WorkerServer) -> None:
    reply = call(server, "fork_and_return")
    assert reply.ok and reply.value == reply.pid


def test_files_left_in_the_directory_are_removed(server: WorkerServer, tmp_path: Path) -> None:
    assert not Path(call(server, "litter").value).exists()
    where = tmp_path / "cwd"
    assert call(server, "litter_and_die", str(where)).status == "died"
    assert not Path(where.read_text()).exists()


def test_server_killed_between_calls(server: WorkerServer) -> None:
    before = server.pid
    os.kill(before, signal.SIGKILL)
    assert call(server, "echo", 1).value == 1
    assert server.pid != before


def test_server_killed_by_the_code(server: WorkerServer, tmp_path: Path) -> None:
    where = tmp_path / "pid"
    reply = call(server, "orphan_then_kill_server", str(where))
    assert reply.status == "died"
    assert "worker server was killed" in reply.detail
    assert call(server, "echo", 2).value == 2
    assert until(lambda: gone(int(where.read_text())))
    assert until(lambda: gone(reply.pid))


def test_server_stopped_by_the_code(server: WorkerServer) -> None:
    reply = call(server, "stop_server", limits=SHORT)
    assert reply.status == "timeout"
    assert until(lambda: gone(reply.pid))


def test_code_that_closes_all_descriptors(server: WorkerServer) -> None:
    reply = call(server, "close_everything")
    assert reply.status == "died"
    assert "closed the harness's file descriptors" in reply.detail


@pytest.mark.parametrize("name", ["garbage_to_channel", "huge_frame", "forged_frame"])
def test_forged_results_are_refused(server: WorkerServer, name: str) -> None:
    reply = call(server, name)
    assert (reply.status, reply.value) == ("died", None)
    assert "result" in reply.detail


def test_second_result_takes_back_the_first(server: WorkerServer) -> None:
    reply = call(server, "second_result")
    assert (reply.status, reply.value) == ("died", None)
    assert reply.detail == "more than one result came from the call"


def test_result_beyond_its_limit(server: WorkerServer) -> None:
    reply = call(server, "too_large", 2 << 20, limits=Limits(result_bytes=1 << 20))
    assert reply.status == "raised"
    assert reply.error is not None and "more than 1048576 bytes" in reply.error.message


def test_large_result_comes_whole(server: WorkerServer) -> None:
    reply = call(server, "too_large", 32 << 20)
    assert reply.ok and reply.value.numel() == 32 << 20


def test_file_beyond_its_limit(server: WorkerServer) -> None:
    reply = call(server, "large_file", 2 << 20, limits=Limits(file_bytes=1 << 20))
    assert reply.status == "raised" and "File too large" in reply.detail


def test_tensor_subclass_is_refused_by_its_path(server: WorkerServer) -> None:
    reply = call(server, "subclass")
    assert reply.status == "raised"
    assert reply.error is not None
    assert reply.error.type == "grader.harness.errors.EncodeError"
    assert reply.error.message.startswith("result['outputs'][1]: ")


def test_progress_is_kept_when_the_code_dies(server: WorkerServer) -> None:
    came: list[Any] = []
    reply = call(server, "half_way", 3, progress=came.append)
    assert reply.status == "died"
    assert [item["step"] for item in came] == [0, 1, 2]
    assert torch.equal(came[2]["tensor"], torch.tensor([2, 2]))


def test_exception_of_the_examiner_ends_the_worker(server: WorkerServer) -> None:
    def stop(value: Any) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        call(server, "half_way", 3, progress=stop)


def test_two_calls_at_once(server: WorkerServer, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(lambda _: call(server, "meet", str(tmp_path)), range(2)))
    assert [reply.value for reply in replies] == [True, True]


def test_a_call_that_dies_leaves_the_other_alone(server: WorkerServer) -> None:
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(call, server, "sleep", 0.3)
        dead = [call(server, "segfault").status for _ in range(3)]
        assert dead == ["died"] * 3
        assert slow.result().ok


def test_no_descriptor_leaks(server: WorkerServer) -> None:
    before = len(os.listdir("/proc/self/fd"))
    below = len(os.listdir(f"/proc/{server.pid}/fd"))
    for index in range(50):
        call(server, "fail" if index % 2 else "echo", "x")
    assert len(os.listdir("/proc/self/fd")) == before
    assert until(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) <= below)


def test_payload_that_cannot_be_sent(server: WorkerServer) -> None:
    with pytest.raises(EncodeError, match=r"payload\['x'\]: "):
        call(server, "echo", {"x": object()})


def test_given_values_pass_through(server: WorkerServer) -> None:
    link = Given("a0.Link", {"bandwidth": 1.0})
    assert call(server, "echo", [link]).value == [link]
    built = call(server, "echo", link, build=lambda name, fields: (name, fields["bandwidth"]))
    assert built.value == ("a0.Link", 1.0)


def test_server_that_cannot_preload_says_why() -> None:
    with (
        WorkerServer(preload=["no_such_module"]) as server,
        pytest.raises(WorkerServerError, match="No module named 'no_such_module'"),
    ):
        server.call("math:sqrt", 2.0)


def test_closing_ends_calls_and_removes_the_directory(tmp_path: Path) -> None:
    server = WorkerServer(path=[KIT])
    server.wait_ready()
    pid = server.pid
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(call(server, "sleep", 30.0)))
    thread.start()
    assert until(lambda: len(children(pid)) == 1)
    server.close()
    server.close()
    thread.join(10)
    assert replies[0].status == "died"
    assert gone(pid)
    with pytest.raises(WorkerServerError, match="closed"):
        call(server, "echo")


EXAMINER = """
import sys
from grader.harness import WorkerServer
from grader.harness import Limits
server = WorkerServer(path=[{kit!r}])
server.wait_ready()
print(server.pid, flush=True)
server.call("tests.harness.targets:sleep", 120.0, limits=Limits(wall_seconds=120))
"""


@pytest.mark.parametrize("server_killed", [False, True])
def test_nothing_outlives_a_killed_examiner(tmp_path: Path, server_killed: bool) -> None:
    code = EXAMINER.format(kit=str(KIT))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=KIT, stdout=subprocess.PIPE, env=environment
    ) as examiner:
        assert examiner.stdout is not None
        pid = int(examiner.stdout.readline())
        try:
            assert until(lambda: len(children(pid)) == 1, 60)
            worker = children(pid)[0]
            if server_killed:  # stopped first, so that it cannot see to the worker itself
                os.kill(pid, signal.SIGSTOP)
        finally:
            examiner.kill()
            if server_killed:
                os.kill(pid, signal.SIGKILL)
    assert until(lambda: gone(pid) and gone(worker))
    assert server_killed or until(lambda: not list(tmp_path.iterdir()))


def test_in_process_gives_the_same_reply() -> None:
    reply = call_in_process(f"{TARGETS}:echo", {"x": torch.ones(2)})
    assert reply.ok and reply.pid == os.getpid()
    assert torch.equal(reply.value["x"], torch.ones(2))
    failed = call_in_process(f"{TARGETS}:fail", "a1.broadcast")
    assert (failed.status, failed.detail) == ("raised", "NotImplementedError: a1.broadcast")
    assert call_in_process(f"{TARGETS}:system_exit").status == "died"


def test_in_process_debugging_lets_exceptions_through() -> None:
    with pytest.raises(NotImplementedError, match=r"a1\.broadcast"):
        call_in_process(f"{TARGETS}:fail", "a1.broadcast", debug=True)


def test_importing_the_harness_does_not_import_torch() -> None:
    code = "import sys, grader.harness; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=KIT).returncode == 0


def test_temporary_directories_are_gone_after_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with WorkerServer(path=[KIT]) as server:
        reply = call(server, "surroundings")
        assert Path(reply.value["cwd"]).is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []
