"""What the grader may say to a student, collected from its source: the msgids of its catalogue.

A message with numbers is an f-string in the source; its msgid has numbered fields in the place of
what is filled in: f"rank {rank} sent {n} bytes" is "rank {0} sent {1} bytes".
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from .answers import ROOT

CHECKS = ROOT / "grader" / "checks"
#: Names of functions, parameters and variables that hold likely causes.
FAILURES = ("CheckFailed", "SolutionError", "SolutionTimeout", "Unimplemented", "_fail", "_fault")
_CAUSES = ("cause", "why", "because", "reason", "suspect", "blame", "said")


def msgid(node: ast.expr) -> str | None:
    """The msgid of a string or an f-string; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts, fields = [], 0
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
            else:
                parts.append(f"{{{fields}}}")
                fields += 1
        return "".join(parts)
    return None


def is_sentence(text: str | None) -> bool:
    """Whether it is something to translate: words, not a name or a key."""
    return text is not None and " " in text.strip() and any(letter.isalpha() for letter in text)


def strings(node: ast.AST) -> Iterator[str]:
    """Every string that an expression may be: both sides of a conditional, parts of an `or`."""
    if isinstance(node, ast.expr) and (text := msgid(node)) is not None:
        if is_sentence(text):
            yield text
        return
    if isinstance(node, ast.IfExp):
        yield from strings(node.body)
        yield from strings(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from strings(value)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from strings(node.left)
        yield from strings(node.right)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from strings(value)
    elif isinstance(node, (ast.Tuple, ast.List)):
        for value in node.elts:
            yield from strings(value)


def _speaks_of_causes(name: str) -> bool:
    return any(word in name.lower() for word in _CAUSES)


def _is_long(text: str | None) -> bool:
    """Four words at least, so that it is no label of a case."""
    return text is not None and len(re.sub(r"\{\d\}", "", text).split()) >= 4 and "," not in text


def _is_failure(call: ast.Call) -> bool:
    return getattr(call.func, "id", getattr(call.func, "attr", "")) in FAILURES


def causes(path: Path) -> dict[str, int]:
    """Likely causes in a module: msgid → line."""
    found: dict[str, int] = {}
    tree = ast.parse(path.read_text(encoding="utf-8"))

    def add(node: ast.AST) -> None:
        for text in strings(node):
            found.setdefault(text, getattr(node, "lineno", 0))

    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None and _speaks_of_causes(node.arg):
            add(node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                name = getattr(target, "id", getattr(target, "attr", ""))
                if _speaks_of_causes(name):
                    add(node.value)
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:  # a wrong answer, and why
            if msgid(node.elts[0]) is None and _is_long(msgid(node.elts[1])):
                add(node.elts[1])
        elif isinstance(node, ast.Call) and _is_failure(node) and len(node.args) > 1:
            add(node.args[1])
        elif isinstance(node, ast.FunctionDef):
            if _speaks_of_causes(node.name) or _speaks_of_causes(path.stem):
                for inner in ast.walk(node):
                    if isinstance(inner, (ast.Return, ast.Yield)) and inner.value is not None:
                        add(inner.value)
    for statement in tree.body:  # module-level sentences in capitals are causes by custom
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            if statement.targets[0].id.isupper():
                add(statement.value)
    return found


def all_causes() -> dict[str, str]:
    """msgid → "file:line" of the first place."""
    found: dict[str, str] = {}
    for path in sorted(CHECKS.glob("*.py")):
        for text, line in causes(path).items():
            found.setdefault(text, f"{path.name}:{line}")
    return found


def failures(path: Path) -> dict[str, int]:
    """Messages of `CheckFailed` and its like in a module: msgid → line."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and _is_failure(node) and node.args:
            for text in strings(node.args[0]):
                found.setdefault(text, node.lineno)
    return found


def all_failures() -> dict[str, str]:
    """msgid → "file:line" of the first place."""
    found: dict[str, str] = {}
    for path in sorted(CHECKS.glob("*.py")):
        for text, line in failures(path).items():
            found.setdefault(text, f"{path.name}:{line}")
    return found


def main() -> None:
    """Print likely causes that the Chinese catalogue lacks, as entries to fill in."""
    from grader.report import catalogue

    entries = catalogue.entries(catalogue.PO_FILE.read_text(encoding="utf-8"))
    for text, where in all_causes().items():
        if text not in entries and not text.startswith("Legend:"):
            print(f'# {where}\nmsgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n')


if __name__ == "__main__":
    main()
