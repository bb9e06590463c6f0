"""Of several ranks that failed, which one was the cause; and which process waits for another."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from grader.harness import clocks
from grader.harness.reply import RaisedError, Reply
from grader.harness.watchdog import blamed, first_cause, is_waiting


def raised(message: str) -> Reply:
    return Reply("raised", error=RaisedError("RuntimeError", message, ""))


LOST = raised("[pair.cc:553] Connection closed by peer [127.0.0.1]:1")


def test_the_first_failure_is_the_cause() -> None:
    replies = [Reply("stopped"), raised("mine"), raised("mine too"), Reply("ok")]
    assert first_cause(replies, [3, 2, 1]) == 2


def test_a_lost_connection_follows_from_another_rank() -> None:
    replies = [LOST, Reply("died"), LOST]
    assert first_cause(replies, [0, 2, 1]) == 1


def test_a_lost_connection_is_the_cause_when_there_is_no_other() -> None:
    assert first_cause([Reply("ok"), LOST, LOST], [2, 1]) == 2


def test_nobody_failed() -> None:
    assert first_cause([Reply("ok"), Reply("stopped")], [0]) is None


@contextmanager
def process(body: Callable[[], object]) -> Iterator[int]:
    child = multiprocessing.get_context("fork").Process(target=body)
    child.start()
    assert child.pid is not None
    try:
        yield child.pid
    finally:
        child.kill()
        child.join()


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def spin() -> None:
    while True:
        pass


def settled(pid: int, waiting: bool) -> bool:
    deadline = time.monotonic() + 10
    while is_waiting(pid) != waiting and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_waiting(pid) == waiting


def test_a_loop_and_a_sleep_are_no_wait_for_another() -> None:
    with (
        process(wait_for_a_lock) as waits,
        process(spin) as loops,
        process(lambda: time.sleep(60)) as sleeps,
    ):
        assert settled(waits, True) and settled(loops, False) and settled(sleeps, False)
        assert blamed([waits, loops, waits]) == [1]
        assert blamed([waits, waits]) == []
        assert blamed([loops]) == [0]


def test_a_stopped_process_stands_still_and_goes_on() -> None:
    with process(spin) as pid:
        before = cpu_seconds(pid)
        while cpu_seconds(pid) == before:
            time.sleep(0.01)
        clocks.stop([pid])
        clocks.settle([pid])
        stopped = cpu_seconds(pid)
        time.sleep(0.05)
        assert cpu_seconds(pid) == stopped
        clocks.resume([pid])
        while cpu_seconds(pid) == stopped:
            time.sleep(0.01)


def cpu_seconds(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[11])


def test_children_of_a_stopped_process_are_stopped_too() -> None:
    def parent() -> None:
        if os.fork() == 0:
            spin()
        spin()

    with process(parent) as pid:
        deadline = time.monotonic() + 10
        while not (below := clocks.processes.children(pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        clocks.stop([pid])
        clocks.settle([pid])
        stopped = cpu_seconds(below[0])
        time.sleep(0.05)
        assert cpu_seconds(below[0]) == stopped
        os.kill(below[0], signal.SIGKILL)


def test_measurements_take_turns() -> None:
    name = f"\0tinyparallel-test-{os.getpid()}"
    inside: list[int] = []
    most: list[int] = []

    def measure() -> None:
        with clocks.turn(30, name) as alone:
            assert alone
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


def test_whoever_waited_goes_before_one_who_comes_again() -> None:
    name = f"\0tinyparallel-test3-{os.getpid()}"
    order: list[str] = []
    waits = threading.Event()

    def other() -> None:
        waits.set()
        with clocks.turn(30, name):
            order.append("other")

    with clocks.turn(30, name):
        thread = threading.Thread(target=other)
        thread.start()
        waits.wait()
        deadline = time.monotonic() + 10
        while not connections(name) and time.monotonic() < deadline:
            time.sleep(0.01)
    with clocks.turn(30, name):
        order.append("again")
    thread.join()
    assert order == ["other", "again"]


def connections(name: str) -> bool:
    """Whether somebody waits at the lock: a second line of its name."""
    with open("/proc/net/unix", encoding="utf-8") as file:
        return sum(line.rstrip().endswith("@" + name[1:]) for line in file) > 1


def test_a_measurement_that_waited_too_long_says_that_it_is_not_alone() -> None:
    name = f"\0tinyparallel-test2-{os.getpid()}"
    with clocks.turn(1, name) as first, clocks.turn(0.05, name) as second:
        assert (first, second) == (True, False)
