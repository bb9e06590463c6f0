"""Grades several folders in one process: `python -m tests.grading.many JOBS.json OUT.json`.

JOBS: {name: [folder, [task ids]]}; OUT: {name: {task id: what `check --json` says of it}}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grader import tasks
from grader.checks import workers
from grader.checks.run import run_checks


def main(jobs: Path, out: Path) -> None:
    """Grade all jobs, one after the other."""
    graded = {}
    workers.start()
    try:
        for name, (folder, ids) in json.loads(jobs.read_text()).items():
            results = run_checks([tasks.find(task) for task in ids], [f"--solution={folder}"])
            graded[name] = {task["task"]: task for task in results.to_json()["tasks"]}
    finally:
        workers.stop()
    out.write_text(json.dumps(graded))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
