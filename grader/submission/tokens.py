"""Source text as tokens, read by one expression in linear time: nothing is parsed or compiled.

A parser can be made to fail or to exhaust the stack by what it parses; this cannot.
"""

from __future__ import annotations

import codecs
import keyword
import re
import unicodedata
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
_COOKIE: Final = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
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


def encoding(source: bytes) -> str:
    """The encoding that a Python file names in its first two lines; "" for UTF-8 and for none."""
    for line in source.split(b"\n", 2)[:2]:
        match = _COOKIE.match(line)
        if match is None:
            continue
        try:
            name = codecs.lookup(match[1].decode("ascii")).name
            "".encode(name)  # "rot13" and the like are no encodings of text
        except (LookupError, ValueError):
            return ""
        return "" if name in ("utf-8", "utf-8-sig", "ascii") else name
    return ""


def tokens(source: bytes, path: str) -> list[Token]:
    """All but comments and white space. path: its ending tells the language."""
    named = "" if path.endswith(".cu") else encoding(source)
    text = source.decode(named or "utf-8", errors="replace")
    pattern = _CUDA if path.endswith(".cu") else _PYTHON
    found = []
    line, end = 1, 0
    for match in pattern.finditer(text):
        line += text.count("\n", end, match.start())
        end = match.start()
        kind = match.lastgroup
        if kind in ("name", "number", "string", "operator"):
            # Python takes full-width and other letters of a name for the plain ones.
            words = unicodedata.normalize("NFKC", match[0]) if kind == "name" else match[0]
            found.append(Token(kind, words, line))  # type: ignore[arg-type]
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
