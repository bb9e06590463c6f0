"""Run by torchrun on two "machines" of two processes each; rank 0 prints what came of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

KIT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(KIT))

from grader.harness import Limits, WorkerServer  # noqa: E402
from grader.harness.worlds import WorldOptions  # noqa: E402
from grader.harness.worlds_adopted import AdoptedMachines, adoption  # noqa: E402

TARGETS = "tests.harness.world_targets"


def main() -> int:
    here = adoption()
    assert here is not None
    if here.role == "bystander":
        return AdoptedMachines(here, None).serve()
    with WorkerServer(preload=["grader.harness.worlds_rank", TARGETS], path=[KIT]) as server:
        server.wait_ready()
        machines = AdoptedMachines(here, server)
        if here.role == "host":
            return machines.serve()
        told = {}
        for name, size, limit in (
            ("rank_number", 4, 60.0),
            ("rank_number", 3, 60.0),
            ("killed", 4, 60.0),
            ("raises", 4, 60.0),
            ("hangs_in_python", 4, 3.0),
        ):
            reply = machines.run_world(
                f"{TARGETS}:{name}",
                [f"payload {rank}" for rank in range(size)],
                limits=Limits(wall_seconds=limit),
                options=WorldOptions(),
            )
            told[f"{name} {size}"] = [reply.status, reply.rank, reply.detail, reply.values]
        print("TOLD " + json.dumps(told), flush=True)
        machines.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
