"""From a solved file to a stub: what stands between the marks goes.

    # BEGIN SOLUTION        (// in C++ and CUDA)
    ...
    # END SOLUTION

Inside a task's function the marked lines become `raise NotImplementedError("a2.ring_all_reduce")`;
anywhere else (helpers, imports) they disappear.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from grader.tasks import TASKS, Task

PYTHON = {".py"}
NATIVE = {".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc"}
_MARK = re.compile(r"(?:#|//) (BEGIN|END) SOLUTION")
_LIKE_A_MARK = re.compile(r"\b(BEGIN|END)[\s_-]*SOLUTION", re.IGNORECASE)
_C_FUNCTION = re.compile(r"^[A-Za-z_].*?\b(\w+)\s*\(")


class MarkError(ValueError):
    """Marks that cannot be right; the message begins with file and line."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")


@dataclass(frozen=True)
class Block:
    """Marked lines: `begin` and `end` are the lines of the marks themselves, counted from 1."""

    begin: int
    end: int
    indentation: str


def make_stub(source: str, path: str, tasks: Sequence[Task] | None = None) -> str:
    """The stub of a solved file.

    source: the file's text; path: relative to the solution folder, with slashes; tasks: the
    table, default all. Raises `MarkError` for nested, unbalanced, misspelt or empty marks, and
    when what is left is no program.
    """
    tasks = TASKS if tasks is None else tasks
    suffix = PurePosixPath(path).suffix
    if suffix not in PYTHON | NATIVE:
        return source
    blocks = find_blocks(source, path)
    if not blocks:
        return source
    here = [task for task in tasks if task.path == path]
    lines = source.splitlines(keepends=True)
    tree = _parse(source, path) if suffix in PYTHON else None
    stub: list[str] = []
    position = 0
    for block in blocks:
        stub += lines[position : block.begin - 1]
        position = block.end
        if tree is not None:
            replacement = _python_replacement(tree, block, here)
        else:
            replacement = _native_replacement(lines, block, path, tasks)
        if replacement:
            stub.append(f"{block.indentation}{replacement}\n")
        else:
            position = _close_gap(stub, lines, position)
    stub += lines[position:]
    text = "".join(stub)
    if tree is not None:
        _check_python(tree, text, path)
    return text


def find_blocks(source: str, path: str) -> list[Block]:
    """The marked blocks of a file, in order. Raises `MarkError`."""
    blocks: list[Block] = []
    opened: tuple[int, str] | None = None
    lines = source.splitlines()
    sign = "#" if PurePosixPath(path).suffix in PYTHON else "//"
    for number, comment in _comments(source, path):
        line = lines[number - 1]
        match = _MARK.fullmatch(line.strip())
        if match is None:
            if _LIKE_A_MARK.search(comment):
                raise MarkError(path, number, f"looks like a mark but is none: {line.strip()}")
            continue
        indentation = line[: len(line) - len(line.lstrip())]
        if match[1] == "BEGIN":
            if opened is not None:
                raise MarkError(path, number, f"BEGIN SOLUTION inside that of line {opened[0]}")
            opened = (number, indentation)
            continue
        if opened is None:
            raise MarkError(path, number, "END SOLUTION without BEGIN SOLUTION")
        begin, indented = opened
        if indentation != indented:
            raise MarkError(path, number, f"END SOLUTION is not indented as line {begin}")
        body = [each.strip() for each in lines[begin : number - 1]]
        if all(not each or each.startswith(sign) for each in body):
            raise MarkError(path, begin, "nothing is solved between the marks")
        blocks.append(Block(begin, number, indentation))
        opened = None
    if opened is not None:
        raise MarkError(path, opened[0], "BEGIN SOLUTION without END SOLUTION")
    return blocks


def _comments(source: str, path: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every comment; in native files, of every line that holds `//`."""
    if PurePosixPath(path).suffix in NATIVE:
        for number, line in enumerate(source.splitlines(), 1):
            if "//" in line:
                yield number, line
        return
    _parse(source, path)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _python_replacement(tree: ast.Module, block: Block, tasks: Sequence[Task]) -> str:
    scopes = _scopes(tree, block.begin)
    in_function = any(not isinstance(scope, ast.ClassDef) for scope in scopes)
    for task in tasks:
        if in_function and scopes[0].name == task.attribute:
            return f'raise NotImplementedError("{task.id}")'
    return ""


def _scopes(
    tree: ast.Module, line: int
) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes around a line, outermost first."""
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and node.lineno < line <= (node.end_lineno or node.lineno)
    ]
    return sorted(found, key=lambda node: node.lineno)


def _native_replacement(
    lines: Sequence[str], block: Block, path: str, tasks: Sequence[Task]
) -> str:
    """A comment inside a function; nothing at the outermost level."""
    if not block.indentation:
        return ""
    folder = PurePosixPath(path).parts[0]
    for line in reversed(lines[: block.begin - 1]):
        match = _C_FUNCTION.match(line)
        if match is not None:
            owners = [t for t in tasks if t.assignment == folder and t.attribute in match[1]]
            longest = max(owners, key=lambda task: len(task.attribute), default=None)
            return f"// TODO({longest.id})" if longest is not None else "// TODO"
    return "// TODO"


def _close_gap(stub: list[str], lines: Sequence[str], position: int) -> int:
    """Where a block disappeared, keep the larger of the gaps around it, not both."""
    before = 0
    while stub and not stub[-1].strip():
        stub.pop()
        before += 1
    after = 0
    while position < len(lines) and not lines[position].strip():
        position += 1
        after += 1
    if stub and position < len(lines):
        stub += ["\n"] * max(before, after)
    return position


def _parse(source: str, path: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise MarkError(path, error.lineno or 1, f"no Python: {error.msg}") from None


def _check_python(solved: ast.Module, stub: str, path: str) -> None:
    """The stub must be a program, and no helper may have become one that does nothing."""
    try:
        left = ast.parse(stub)
    except SyntaxError as error:
        problem = f"without the marked lines this is no Python: {error.msg}"
        raise MarkError(path, error.lineno or 1, problem) from None
    before = dict(_functions(solved, ""))
    for name, node in _functions(left, ""):
        original = before.get(name)
        if original is not None and _does_nothing(node) and not _does_nothing(original):
            problem = f"the marks leave {name}() empty; put them around the whole function"
            raise MarkError(path, original.lineno, problem)


def _functions(
    node: ast.AST, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + child.name, child
        name = getattr(child, "name", None)
        inner = f"{prefix}{name}." if isinstance(name, str) else prefix
        yield from _functions(child, inner)


def _does_nothing(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return (
        len(node.body) == 1
        and isinstance(node.body[0], ast.Expr)
        and bool(isinstance(node.body[0].value, ast.Constant))
    )
