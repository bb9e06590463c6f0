"""`python tests/submission/audited.py -m MODULE …`: a module whose process notes what it runs.

Stands in for the interpreter of a batch, and through it for those of its examiners. Whatever is
compiled, executed or looked up by an unpickler goes to the file LOG, when it is of a student: his
files contain MARK. What runs in the sandbox has the real interpreter, and is not noted.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import CodeType

MARK = "a-line-of-the-students-own"
LOG = Path(__file__).with_name("LOG")  # replaced in a copy of this file, see `install`


def _is_theirs(value: object) -> bool:
    if isinstance(value, CodeType):
        parts = (value.co_filename, *map(str, value.co_consts), *value.co_names)
        return any(MARK in part or "/kit/assignments/" in part for part in parts)
    if isinstance(value, (bytes, bytearray)):
        return MARK.encode() in value
    return isinstance(value, str) and (MARK in value or "/kit/assignments/" in value)


def _is_parsed_only() -> bool:
    """Whether a compilation is one of `ast.parse`, which makes a tree and no code."""
    caller = sys._getframe(2)
    return caller.f_globals.get("__name__") == "ast" and caller.f_code.co_name == "parse"


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "pickle.find_class":
        _write(f"{event} {arguments[0]}.{arguments[1]}")
    elif event in ("compile", "exec", "marshal.loads", "import"):
        if any(_is_theirs(value) for value in arguments) and not (
            event == "compile" and _is_parsed_only()
        ):
            _write(f"{event} {arguments[-1]!r:.200}")


def _write(line: str) -> None:
    number = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(number, f"{line}\n".encode())
    os.close(number)


def install(folder: Path) -> tuple[Path, Path]:
    """A copy that can be started like an interpreter; (that, its log, which is empty)."""
    log, program = folder / "audit.log", folder / "python"
    text = Path(__file__).read_text(encoding="utf-8")
    text = text.replace('Path(__file__).with_name("LOG")', f"Path({str(log)!r})", 1)
    program.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    program.chmod(0o755)
    log.touch()
    return program, log


def _main() -> None:
    _, _, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    sys.path[0] = os.getcwd()
    sys.addaudithook(_note)
    _write(f"started {module}")
    if module == "grader":
        sys.executable = os.path.abspath(__file__)  # its examiners are noted, too
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
