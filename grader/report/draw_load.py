"""`grader draw a8.…`: how many tokens each expert gets from a solution's router.

The solution's code runs in a worker, as always, and so does the given module that draws. The
tokens are random; some experts are liked more than others, as after a few steps of training.
"""

from __future__ import annotations

from pathlib import Path

import torch

from grader import tasks
from grader.checks.framework import CheckFailed
from grader.checks.settings import CannotRun, Settings, solution_folder
from grader.checks.world import SimulatedCluster

#: Tasks that choose experts -> for how many batches they are asked, being updated in between.
ROUTERS = {"a8.top_k_router": 1, "a8.BiasBalancedRouter": 200}
#: How far a bias moves in one update: enough to see it work in these batches.
GAMMA = 1e-3


def draw_load(
    task: str,
    *,
    tokens: int = 1024,
    experts: int = 16,
    k: int = 2,
    solution: str = "assignments",
    output: Path | None = None,
    in_process: bool = False,
) -> str:
    """Draw the load of `experts` experts under the router `task` ("a8.top_k_router").

    output: an SVG file to write; `None`: nothing is written.
    Returns the text to print: bars, or what was written where.

    Raises `CannotRun` when the task chooses no experts, k does not fit, the file cannot be written,
    or the solution's code fails; the message says which.
    """
    found = tasks.find(task)
    if found.id not in ROUTERS:
        raise CannotRun(f"{task} chooses no experts; there are {', '.join(ROUTERS)}")
    if k > experts:
        raise CannotRun(f"--k {k}: expected at most --experts {experts}")
    rng = torch.Generator().manual_seed(8)
    liking = torch.randn(experts, generator=rng)
    batches = ROUTERS[found.id]
    logits = [torch.randn(tokens, experts, generator=rng) + liking for _ in range(batches)]
    title = f"{found.attribute} of {solution}: {tokens} tokens, {experts} experts, k={k}"
    given = {"task": task, "logits": logits, "k": k, "gamma": GAMMA, "title": title}
    settings = Settings(solution, solution_folder(solution), in_process=in_process)
    try:
        outputs, _ = SimulatedCluster(settings, {}).run("a8:load", [given], task=task, allow=None)
    except CheckFailed as failure:
        raise CannotRun(failure.message) from None
    drawing = outputs[0]
    if output is None:
        return f"{title}\n{drawing['text']}"
    try:
        output.write_text(str(drawing["svg"]), encoding="utf-8")
    except OSError as error:
        raise CannotRun(f"cannot write {output}: {error.strerror}") from None
    summary = str(drawing["text"]).rpartition("\n")[2]
    return f"wrote {output}: {summary}"
