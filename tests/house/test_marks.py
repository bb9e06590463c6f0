"""From solved files to stubs: `grader.marks`."""

from __future__ import annotations

import ast

import pytest

from grader.marks import MarkError, make_stub
from grader.tasks import Task

TASKS = (
    Task("a9.ring", 1, "a9_fake.ring", "ring", ""),
    Task("a9.Layer", 1, "a9_fake.ring", "Layer", ""),
    Task("a9.reduce_add", 1, "a9_fake.kernels", "reduce_add", ""),
    Task("a9.other", 1, "a9_fake.other", "helper", ""),
)

SOLVED = '''"""A module."""

import torch

# BEGIN SOLUTION
from .secret import trick

# END SOLUTION


def ring(tensor):
    """What to do."""
    size = 4
    # BEGIN SOLUTION
    trick(tensor)
    for _ in range(size):

        trick(tensor)
    # END SOLUTION


# BEGIN SOLUTION
def helper():
    return "the answer"


# END SOLUTION


class Layer:
    """Doc."""

    # BEGIN SOLUTION
    table = {}

    # END SOLUTION
    def forward(self, x):
        """Doc."""
        if x is None:
            # BEGIN SOLUTION
            return trick(x)
            # END SOLUTION
        return x
'''

STUB = '''"""A module."""

import torch


def ring(tensor):
    """What to do."""
    size = 4
    raise NotImplementedError("a9.ring")


class Layer:
    """Doc."""

    def forward(self, x):
        """Doc."""
        if x is None:
            raise NotImplementedError("a9.Layer")
        return x
'''


def test_stub_of_a_solved_module() -> None:
    assert make_stub(SOLVED, "a9_fake/ring.py", TASKS) == STUB


def test_stub_needs_the_right_module_for_a_task() -> None:
    """`helper` is a task of another module, so here its marked lines only disappear."""
    source = (
        "def helper(x):\n    y = x\n"
        "    # BEGIN SOLUTION\n    y += 1\n    # END SOLUTION\n    return y\n"
    )
    assert "raise" not in make_stub(source, "a9_fake/ring.py", TASKS)
    assert 'raise NotImplementedError("a9.other")' in make_stub(source, "a9_fake/other.py", TASKS)


def test_marks_inside_strings_are_text() -> None:
    source = 'TEXT = """\n# BEGIN SOLUTION\n"""\n'
    assert make_stub(source, "a9_fake/ring.py", TASKS) == source


def test_native_file() -> None:
    source = (
        "// BEGIN SOLUTION\n#define WIDTH 4\n// END SOLUTION\n"
        "__global__ void reduce_add_f32(float* dst) {\n"
        "    // BEGIN SOLUTION\n    dst[0] += 1;\n    // END SOLUTION\n}\n"
    )
    expected = "__global__ void reduce_add_f32(float* dst) {\n    // TODO(a9.reduce_add)\n}\n"
    assert make_stub(source, "a9_fake/kernels.cu", TASKS) == expected


BEGIN, END = "# BEGIN SOLUTION\n", "# END SOLUTION\n"


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        (f"{BEGIN}x = 1\n{BEGIN}y = 1\n{END}{END}", 3, "inside that of line 1"),
        (f"x = 1\n{END}", 2, "END SOLUTION without BEGIN"),
        (f"x = 1\n{BEGIN}y = 2\n", 2, "BEGIN SOLUTION without END"),
        (f"{BEGIN}{END}", 1, "nothing is solved"),
        (f"{BEGIN}# x = 1\n{END}", 1, "nothing is solved"),
        (f"{BEGIN}x = 1\n# END SOLUTIONS\n", 3, "looks like a mark"),
        (f"#BEGIN SOLUTION\nx = 1\n{END}", 1, "looks like a mark"),
        (f"# begin solution\nx = 1\n{END}", 1, "looks like a mark"),
        (f"x = 1  # BEGIN SOLUTION\ny = 1\n{END}", 1, "looks like a mark"),
        (f"def f():\n    {BEGIN}    x = 1\n{END}", 4, "not indented"),
        (f"def f():\n    {BEGIN}    x = 1\n    {END}", 1, "no Python"),
        (f"def f():\n    '''Doc.'''\n    {BEGIN}    x = 1\n    {END}", 1, "leave f() empty"),
        ("def f(:\n", 1, "no Python"),
    ],
)
def test_wrong_marks_are_refused_with_file_and_line(source: str, line: int, words: str) -> None:
    with pytest.raises(MarkError) as caught:
        make_stub(source, "a9_fake/ring.py", TASKS)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"a9_fake/ring.py:{line}: ")


def test_stub_is_a_program_and_holds_no_marked_line() -> None:
    stub = make_stub(SOLVED, "a9_fake/ring.py", TASKS)
    ast.parse(stub)
    assert "trick" not in stub
    assert "SOLUTION" not in stub
