"""What `initialize` and `shutdown` leave behind, seen from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster

INITIALIZE, SHUTDOWN = "a9.initialize", "a9.shutdown"
Answers = list[list[dict[str, Any]]]  # by rank, by step


def _run(
    cluster: SimulatedCluster,
    task: str,
    ranks: int,
    steps: Sequence[dict[str, Any]] | Sequence[Sequence[dict[str, Any]]],
    *,
    per_node: int = 0,
    cores: int = 8,
    gpus: int = 0,
    alone: bool = True,
    environment: dict[str, str | None] | None = None,
) -> Answers:
    """`steps` on every rank, or one list of steps for each."""
    inputs = []
    local = per_node or ranks
    for rank in range(ranks):
        variables: dict[str, str | None] = {
            "LOCAL_RANK": str(rank % local),
            "LOCAL_WORLD_SIZE": str(local),
        }
        own = steps[rank] if not isinstance(steps[0], dict) else steps
        inputs.append(
            {
                "cores": cores,
                "gpus": gpus,
                "alone": alone,
                "steps": list(own),
                "environment": variables if environment is None else environment,
            }
        )
    return cluster.run("a9_train:harness", inputs, task=task, allow=None).outputs


def initialize(**arguments: Any) -> dict[str, Any]:
    """A step that calls it."""
    return {"do": "initialize", "arguments": {"device": "cpu", **arguments}}


LEAVE = {"do": "shutdown"}

UNTOLD = (
    "the variables of torchrun are needed: without any of them the world must be this process alone"
)
TWICE = (
    "shutdown() may be called twice, or where nothing was begun: then it must do nothing, and not "
    "raise"
)


def _expect_no_error(
    answer: dict[str, Any], where: str, call: str, cause: str | None = None
) -> None:
    error = answer["error"]
    if error is not None:
        message = f"{where}: {call} raised {error['type']}: {error['message']}"
        raise CheckFailed(message, cause=cause)


def _own_cores(local_rank: int, local: int, cores: int) -> list[int]:
    if cores < local:
        return [local_rank % cores]
    return list(range(cores * local_rank // local, cores * (local_rank + 1) // local))


# initialize ------------------------------------------------------------------------------------


def joins(cluster: SimulatedCluster, ranks: int, per_node: int) -> None:
    """The group, and what is told of this process; alone, too, and where a group is there."""
    environments: list[tuple[str, dict[str, str | None] | None, bool]] = [("", None, True)]
    if ranks == 1:
        none = dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
        none |= dict.fromkeys(("MASTER_ADDR", "MASTER_PORT"))
        environments.append((", nothing in the environment", none, True))
    else:
        environments.append((", a default group is there already", None, False))
    for label, environment, alone in environments:
        answers = _run(
            cluster, INITIALIZE, ranks, [initialize(), LEAVE],
            per_node=per_node, environment=environment, alone=alone,
        )  # fmt: skip
        for rank, (found, _) in enumerate(answers):
            where = f"rank {rank} of {ranks}, {per_node} on a machine{label}"
            _expect_no_error(found, where, "initialize()", UNTOLD if environment else None)
            if found["group"] != [rank, ranks]:
                raise CheckFailed(
                    f"{where}: the default process group should have this rank as [{rank}, "
                    f"{ranks}] (rank, world size), found {found['group']}",
                    cause="init_process_group is not called" if found["group"] is None else None,
                )
            expected = [rank, ranks, rank % per_node, per_node]
            process = found["process"]
            if process is None or process["numbers"] != expected:
                raise CheckFailed(
                    f"{where}: expected a Process with (rank, world_size, local_rank, "
                    f"local_world_size) = {tuple(expected)}, got "
                    f"{process and tuple(process['numbers'])}",
                    cause="LOCAL_RANK is the number on this machine, RANK that in the whole job"
                    if process is not None
                    else "initialize returns a Process of config.py",
                )
            if found["sum"] != ranks * (ranks + 1) / 2:
                raise CheckFailed(
                    f"{where}: an all-reduce over the default group gave {found['sum']}"
                )


def binds_cores(cluster: SimulatedCluster, ranks: int, per_node: int, cores: int) -> None:
    """An even, contiguous share for each local rank."""
    answers = _run(
        cluster, INITIALIZE, ranks, [initialize(), LEAVE], per_node=per_node, cores=cores
    )
    for rank, (found, _) in enumerate(answers):
        where = (
            f"rank {rank}, local rank {rank % per_node} of {per_node} on a machine of {cores} cores"
        )
        _expect_no_error(found, where, "initialize()")
        expected = _own_cores(rank % per_node, per_node, cores)
        if found["bound"] != expected:
            cause = None
            if not found["bound"]:
                cause = "os.sched_setaffinity is not called: the process may run on all cores"
            elif found["bound"] == _own_cores(0, per_node, cores):
                cause = "every rank takes the share of local rank 0: LOCAL_RANK is not looked at"
            elif rank != rank % per_node:
                cause = "the share is computed with RANK: it must go by LOCAL_RANK"
            bound = f"is bound to {found['bound']}" if found["bound"] else "is not bound to any"
            raise CheckFailed(f"{where} should run on cores {expected}, but {bound}", cause=cause)
        if found["process"]["cores"] != expected:
            raise CheckFailed(
                f"{where}: Process.cores should be {expected}, is {found['process']['cores']}"
            )
        if found["threads"] != len(expected):
            raise CheckFailed(
                f"{where}: torch should use {len(expected)} threads, uses {found['threads']}",
                cause="torch.set_num_threads is not called: more threads than cores get in each "
                "other's way",
            )


def binds_devices(cluster: SimulatedCluster, ranks: int, per_node: int) -> None:
    """Each local rank has the GPU of its number; without enough of them "auto" is the CPU."""
    for gpus, device, kind in ((per_node, "auto", "cuda"), (per_node - 1, "auto", "cpu")):
        answers = _run(
            cluster, INITIALIZE, ranks, [initialize(device=device), LEAVE],
            per_node=per_node, gpus=gpus,
        )  # fmt: skip
        for rank, (found, _) in enumerate(answers):
            local = rank % per_node
            where = f'rank {rank}, local rank {local}, {gpus} GPUs, device="{device}"'
            _expect_no_error(found, where, "initialize()")
            expected = f"cuda:{local}" if kind == "cuda" else "cpu"
            got = found["process"] and found["process"]["device"]
            if got != expected or (kind == "cuda" and found["device"] != local):
                all_alike = got == "cuda:0" or found["device"] == 0
                raise CheckFailed(
                    f"{where}: expected device {expected}, and it as the current one; got {got}, "
                    f"current {found['device']}",
                    cause="all ranks take the same GPU: LOCAL_RANK is not looked at"
                    if kind == "cuda" and all_alike
                    else "torch.cuda.set_device is not called, or with RANK"
                    if kind == "cuda"
                    else "NCCL refuses two ranks on one GPU",
                )


def seeds(cluster: SimulatedCluster, ranks: int) -> None:
    """Other draws on every rank, the same ones for the same seed, in torch, random and numpy."""
    steps = [initialize(seed=5), LEAVE, initialize(seed=5), LEAVE, initialize(seed=77), LEAVE]
    answers = _run(cluster, INITIALIZE, ranks, steps)
    names = {
        "torch.rand": "torch", "random.random": "Python's module random",
        "numpy.random.random": "numpy.random",
    }  # fmt: skip
    for number, (name, source) in enumerate(names.items()):
        drawn: list[list[float]] = []
        for rank, answer in enumerate(answers):
            for step in (0, 2, 4):
                _expect_no_error(answer[step], f"rank {rank}, call {step // 2 + 1}", "initialize")
            drawn.append([answer[step]["draws"][number] for step in (0, 2, 4)])
        for rank, (first, again, other) in enumerate(drawn):
            if first != again:
                raise CheckFailed(
                    f"rank {rank}: {name} gives {first:.6f}, and {again:.6f} after the same "
                    f"initialize(seed=5) again",
                    cause=f"{source} is not seeded",
                )
            if first == other:
                raise CheckFailed(
                    f"rank {rank}: {name} gives {first:.6f} after seed=5 and after seed=77",
                    cause=f"{source} is seeded without the argument seed",
                )
        firsts = [first for first, _, _ in drawn]
        if len(set(firsts)) < ranks:
            raise CheckFailed(
                f"{name} gives {', '.join(f'{x:.6f}' for x in firsts)} on the {ranks} ranks: "
                f"expected {ranks} different numbers",
                cause="all ranks have the same seed: they would draw the same dropout masks",
            )


def refuses(cluster: SimulatedCluster) -> None:
    """Variables that are missing, no numbers or out of range; an unknown device."""
    whole = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    cases: list[tuple[dict[str, str | None], dict[str, Any], tuple[str, ...], str]] = [
        ({**whole, "WORLD_SIZE": None}, {}, ("WORLD_SIZE",), "WORLD_SIZE is missing"),
        ({**whole, "RANK": None}, {}, ("RANK",), "RANK is missing"),
        ({**whole, "RANK": "3", "WORLD_SIZE": "3"}, {}, ("RANK", "3"), "RANK is too large"),
        ({**whole, "RANK": "one"}, {}, ("RANK", "one"), "RANK is not a number"),
        ({**whole, "LOCAL_RANK": "1"}, {}, ("LOCAL_RANK", "1"), "LOCAL_RANK is too large"),
        (dict(whole), {"device": "tpu"}, ("tpu",), "there is no such device"),
        (dict(whole), {"device": "cuda"}, ("cuda", "0"), "there is no GPU"),
    ]
    for environment, arguments, words, fault in cases:
        answers = _run(
            cluster, INITIALIZE, 1, [initialize(**arguments), LEAVE], environment=environment
        )
        found = answers[0][0]
        variables = ", ".join(f"{n}={v}" for n, v in environment.items() if v is not None)
        where = f"with {variables} and device={arguments.get('device', 'cpu')!r} ({fault})"
        error = found["error"]
        if error is None or "ValueError" not in error["bases"]:
            got = "nothing" if error is None else f"{error['type']}: {error['message'][:120]}"
            raise CheckFailed(
                f"{where}: expected a ValueError, got {got}",
                cause=f"not checked: {fault}",
            )
        lacking = [word for word in words if word not in error["message"]]
        if lacking:
            raise CheckFailed(
                f"{where}: the message should name {' and '.join(lacking)}: {error['message']!r}"
            )
        if found["group"] is not None or found["bound"] not in ([], list(range(8))):
            raise CheckFailed(
                f"{where}: after the error the default group is {found['group']}, the cores are "
                f"{found['bound']}: expected nothing to be changed",
                cause="the environment is checked too late: check it before anything is changed",
            )


# shutdown --------------------------------------------------------------------------------------


def _expect_clean(found: dict[str, Any], where: str, threads: int, cores: int) -> None:
    if found["group"] is not None:
        raise CheckFailed(
            f"{where}: a default process group is left", cause="destroy_process_group is not called"
        )
    if found["bound"] not in ([], list(range(cores))):
        raise CheckFailed(
            f"{where}: the process is still bound to cores {found['bound']} of {cores}",
            cause="the CPU affinity from before initialize() is not restored",
        )
    if found["threads"] != threads:
        raise CheckFailed(
            f"{where}: torch uses {found['threads']} threads, and used {threads} before",
            cause="the number of threads from before initialize() is not restored",
        )


def leaves_nothing(cluster: SimulatedCluster, ranks: int) -> None:
    """No group, cores and threads as before; again, and before anything has begun."""
    # Four cores a rank, so that the threads are another number than before.
    steps = [LEAVE, initialize(), LEAVE, LEAVE, initialize(), LEAVE]
    answers = _run(cluster, SHUTDOWN, ranks, steps, cores=4 * ranks)
    texts = ("shutdown() before any initialize()", "", "shutdown()", "a second shutdown()", "",
             "initialize() and shutdown() once more")  # fmt: skip
    for rank, answer in enumerate(answers):
        threads = answer[0]["threads"]
        for found, text in zip(answer, texts, strict=True):
            cause = TWICE if text else None
            _expect_no_error(found, f"rank {rank} of {ranks}", text or "initialize()", cause)
            if text:
                _expect_clean(found, f"rank {rank} of {ranks}, after {text}", threads, 4 * ranks)


def leaves_what_was_there(cluster: SimulatedCluster, ranks: int) -> None:
    """A group that `initialize` found stays."""
    answers = _run(cluster, SHUTDOWN, ranks, [initialize(), LEAVE], alone=False)
    for rank, (before, after) in enumerate(answers):
        where = f"rank {rank} of {ranks}"
        _expect_no_error(before, where, "initialize() where a group is there")
        _expect_no_error(after, where, "shutdown()")
        if after["group"] != [rank, ranks]:
            raise CheckFailed(
                f"{where}: the default group was there before initialize(), and is gone after "
                f"shutdown()",
                cause="shutdown() destroys a group that initialize() has not made: it must undo "
                "only what initialize() has done",
            )


def ends_after_an_error(cluster: SimulatedCluster, ranks: int) -> None:
    """Rank 0 fails and leaves alone; the others hear of it later."""
    first = [LEAVE, initialize(), {"do": "fail"}, {"do": "tell"}, {"do": "shutdown"}]
    other = [LEAVE, initialize(), {"do": "wait"}, {"do": "fail"}, {"do": "shutdown"}]
    try:
        answers = _run(cluster, SHUTDOWN, ranks, [first, *([other] * (ranks - 1))], cores=4 * ranks)
    except CheckFailed as failure:
        if failure.status == "unimplemented":
            raise
        raise CheckFailed(
            f"rank 0 of {ranks} calls shutdown(error) while the others are busy: {failure.message}",
            cause="after an error shutdown() waits for the others (a barrier?): it must not, since "
            "they may never come",
        ) from None
    for rank, answer in enumerate(answers):
        threads = answer[0]["threads"]
        for found in answer:
            _expect_no_error(found, f"rank {rank} of {ranks}, after an error", "shutdown(error)")
        _expect_clean(
            answer[-1], f"rank {rank} of {ranks}, after shutdown(error)", threads, 4 * ranks
        )
