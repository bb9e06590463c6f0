"""Text as student code makes it, brought into a form that every file and page can hold."""

from __future__ import annotations

from typing import Any, Final

MAX_NAME: Final = 200
"""Longest name of an exception's class that is kept."""
MAX_MESSAGE: Final = 64 << 10
_MAX_BASES: Final = 64


def clean(text: str) -> str:
    r"""The text; half a character (a lone surrogate, as "\ud800") as Python would write it."""
    if text.isascii():
        return text
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def clipped(text: str, limit: int = MAX_MESSAGE) -> str:
    """No more than about `limit` characters of it: the beginning and the end."""
    if len(text) <= limit:
        return clean(text)
    half = limit // 2
    left_out = f"[… {len(text) - 2 * half} characters left out …]"
    between = f"\n{left_out}\n" if limit > MAX_NAME else left_out
    return clean(f"{text[:half]}{between}{text[-half:]}")


def name(text: str) -> str:
    """A class's name, in one line."""
    return clipped(text, MAX_NAME)


def names(texts: list[str]) -> list[str]:
    """The names of an exception's bases."""
    return [name(text) for text in texts[:_MAX_BASES]]


def error_of(described: dict[Any, Any]) -> dict[Any, Any]:
    """An exception that a driver describes: its type, bases and message within their limits."""
    found = dict(described)
    if type(found.get("type")) is str:
        found["type"] = name(found["type"])
    if type(found.get("message")) is str:
        found["message"] = clipped(found["message"], 4000)
    bases = found.get("bases")
    if type(bases) is list and all(type(base) is str for base in bases):
        found["bases"] = names(bases)
    return found


def cleaned(value: Any) -> Any:
    """`value` with every text in it `clean`."""
    if isinstance(value, str):
        return clean(value)
    if type(value) is dict:
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(cleaned(item) for item in value)
    return value
