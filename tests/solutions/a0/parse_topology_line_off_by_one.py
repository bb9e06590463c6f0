# ruff: noqa: F821 (names of the reference)
"""Counts lines from 0."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "failed",
    "check": "names the line",
    "cause": "counted from 1",
}


_old = parse_topology


def parse_topology(text):
    try:
        return _old(text)
    except ValueError as error:
        number, _, rest = str(error).removeprefix("line ").partition(":")
        raise ValueError(f"line {int(number) - 1}:{rest}") from None
