# ruff: noqa
"""Brackets so deep that a compiler's stack may not hold."""

TASK = "a1.broadcast"
SEEN = "nested|compile|parenthes|recursion|too many"
QUICK = True
SOURCE = "\n\nbroadcast = " + "(" * 3000 + "1" + ")" * 3000 + "\n"
