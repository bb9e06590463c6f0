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

GRADER = ROOT / "grader"
CHECKS = GRADER / "checks"
#: Names of functions, parameters and variables that hold likely causes.
FAILURES = ("CheckFailed", "SolutionError", "SolutionTimeout", "Unimplemented", "_fail", "_fault")
_CAUSES = ("cause", "why", "because", "reason", "suspect", "blame", "said")
#: Exceptions that the command line prints in one line, and what prints them.
REFUSALS = ("CannotRun", "ScriptError", "NotebookError", "UnknownTask", "TooFewGpus", "_refuse")
#: Modules all of whose ValueErrors are refusals; functions that return such messages.
_REFUSING = ("fabric/cluster_file.py", "fabric/presets.py")
_REASONS = {"harness/sandbox.py": ("unavailable", "_trial")}
#: Modules of `submission` that hold code, tables and CSV instead of what is said.
_SILENT = ("calls.py", "gradebook.py", "store.py", "tokens.py")
#: Values of course.toml.
_VALUES = ("in time",)


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


def _name(call: ast.Call) -> str:
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


def _is_failure(call: ast.Call) -> bool:
    return _name(call) in FAILURES


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
        elif isinstance(node, ast.Call) and _name(node) == "expect_same":  # what is compared
            for text in strings(node.args[2]):
                found.setdefault(text, node.lineno)
    return found


def all_failures() -> dict[str, str]:
    """msgid → "file:line" of the first place."""
    found: dict[str, str] = {}
    for path in sorted(CHECKS.glob("*.py")):
        for text, line in failures(path).items():
            found.setdefault(text, f"{path.name}:{line}")
    return found


def refusals(path: Path) -> dict[str, int]:
    """Messages of what cannot be run, in a module: msgid → line."""
    found: dict[str, int] = {}
    module = path.relative_to(GRADER).as_posix()
    names = (*REFUSALS, "ValueError") if module in _REFUSING else REFUSALS
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        told: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and _name(node) in names:
            told = [*node.args[:1]]
        elif isinstance(node, ast.FunctionDef) and node.name in _REASONS.get(module, ()):
            told = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
        for each in told:
            for text in strings(each) if each is not None else ():
                found.setdefault(text, each.lineno if each is not None else 0)
    return found


class _Said(ast.NodeVisitor):
    """All sentences of a module but documentation, assertions, patterns, tables (`_NAME = …`)."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Nobody reads it."""

    def visit_Assign(self, node: ast.Assign) -> None:
        if not getattr(node.targets[0], "id", "").startswith("_"):
            self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not getattr(node.target, "id", "").startswith("_"):
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        if getattr(getattr(node.func, "value", None), "id", "") != "re":
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        self._add(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._add(node)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def _add(self, node: ast.expr) -> None:
        text = msgid(node)
        if text is not None and is_sentence(text) and text not in _VALUES:
            self.found.setdefault(text, node.lineno)


def said(path: Path) -> dict[str, int]:
    """What a module of `grader/submission` prints, notes or refuses: msgid → line."""
    visitor = _Said()
    visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
    return visitor.found


def on_pages(path: Path) -> dict[str, int]:
    """What a template says by itself: `translated(lang, "words")`."""
    content = path.read_text(encoding="utf-8")
    return {
        match[1]: content.count("\n", 0, match.start()) + 1
        for match in re.finditer(r'translated\(lang, "([^"]+)"\)', content)
    }


def all_said() -> dict[str, str]:
    """Of `submit` and `batch`, and all refusals: msgid → "file:line" of the first place."""
    found: dict[str, str] = {}
    submission = GRADER / "submission"
    places = [
        *((path, refusals) for path in sorted(GRADER.rglob("*.py"))),
        *((p, said) for p in sorted(submission.glob("*.py")) if p.name not in _SILENT),
        *((path, on_pages) for path in sorted((GRADER / "report/templates").glob("*.html"))),
    ]
    for path, collect in places:
        for text, line in collect(path).items():
            found.setdefault(text, f"{path.name}:{line}")
    return found


def all_help() -> dict[str, str]:
    """What `grader --help` says, and that of every command: msgid → "--help"."""
    import typer

    from grader.cli import app
    from grader.commands import help_text

    found = dict.fromkeys(help_text.texts(typer.main.get_command(app)), "--help")
    return found | dict.fromkeys(help_text.WORDS, "commands/help_text.py")


def main() -> None:
    """Print likely causes that the Chinese catalogue lacks, as entries to fill in."""
    from grader.report import catalogue

    entries = catalogue.entries(catalogue.PO_FILE.read_text(encoding="utf-8"))
    for text, where in all_causes().items():
        if text not in entries and not text.startswith("Legend:"):
            print(f'# {where}\nmsgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n')


if __name__ == "__main__":
    main()
