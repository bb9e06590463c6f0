"""`python -m grader.submission.examine PARENT check …`: `grader`, for as long as PARENT lives.

The examiner of one submission. A batch that is killed takes its examiners, and with them the
students' processes, along: none of them may disturb the batch that goes on in its place.
"""

from __future__ import annotations

import os
import sys

from grader.harness import processes


def main(arguments: list[str]) -> int:
    """Tie this process to its parent, then run the command."""
    processes.die_with_parent()
    if os.getppid() != int(arguments[0]):
        return 2
    from grader.cli import main as grader

    return grader(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
