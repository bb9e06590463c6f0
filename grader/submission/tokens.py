"""Source text as tokens, read by one expression in linear time: nothing is parsed or compiled.

A parser can be made to fail or to exhaust the stack by what it parses; this cannot.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from typing import Final, Literal

TokenKind = Literal["name", "number", "string", "operator"]

# Every form matches where it begins, whether it ends or not: nothing is ever tried twice.
_SINGLE: Final = r"'(?:\\.|[^'\\\n])*+'?|\"(?:\\.|[^\"\\\n])*+\"?"
_PYTHON_STRING: Final = (
    r"(?:[rRbBuUfF]{1,3}+(?=['\"]))?+(?:'{3}(?:\\.|[^'\\]|'(?!''))*+(?:'{3})?"
    rf"|\"{{3}}(?:\\.|[^\"\\]|\"(?!\"\"))*+(?:\"{{3}})?|{_SINGLE})"
)
_REST: Final = (
    r"|(?P<number>\d[\w.]*)|(?P<name>[^\W\d]\w*)|(?P<operator>->|::|\*\*|//|<<|>>|[-+*/%@&|^<>=!:]=?"
    r"|[()\[\]{},;.~?$`\\])"
)
_PYTHON: Final = re.compile(rf"(?P<comment>#[^\n]*)|(?P<string>{_PYTHON_STRING}){_REST}", re.DOTALL)
_CUDA: Final = re.compile(
    rf"(?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)|(?P<string>{_SINGLE}){_REST}",
    re.DOTALL,
)
_C_KEYWORDS: Final = (
    "if else for while do return switch case break continue const int float double unsigned "
    "void bool char auto template typename struct static inline __global__ __device__ "
    "__shared__ __syncthreads threadIdx blockIdx blockDim gridDim"
)
_C_WORDS: Final = frozenset(_C_KEYWORDS.split())


@dataclass(frozen=True, slots=True)
class Token:
    """text as it stands; line from 1."""

    kind: TokenKind
    text: str
    line: int


def tokens(source: bytes, path: str) -> list[Token]:
    """All but comments and white space. path: its ending tells the language."""
    text = source.decode("utf-8", errors="replace")
    pattern = _CUDA if path.endswith(".cu") else _PYTHON
    found = []
    line, end = 1, 0
    for match in pattern.finditer(text):
        line += text.count("\n", end, match.start())
        end = match.start()
        kind = match.lastgroup
        if kind in ("name", "number", "string", "operator"):
            found.append(Token(kind, match[0], line))  # type: ignore[arg-type]
    return found


def normalised(found: list[Token], path: str) -> list[str]:
    """Words of a file in which names, strings and comments no longer tell one from another."""
    words = _C_WORDS if path.endswith(".cu") else frozenset(keyword.kwlist)
    out = []
    statement = True
    for token in found:
        if token.kind == "name":
            out.append(token.text if token.text in words else "N")
        elif token.kind == "string":
            # A text that stands alone is a docstring: the stub's, or anybody's.
            if not statement:
                out.append("S")
        else:
            out.append(token.text)
        statement = token.kind == "operator" and token.text in (":", ";", "}")
    return out
