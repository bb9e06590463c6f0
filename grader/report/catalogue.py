"""The Chinese gettext catalogue: `grader/locale/zh_CN/LC_MESSAGES/tinyparallel.po`.

The .po file is what is kept and edited. It is compiled in memory when a message is first asked for
(a few milliseconds), so that nothing has to be built after an edit and nothing can be out of date.

Messages with numbers in them are made where a check fails, long before anyone knows the language.
So a msgid may have numbered fields, "rank {0} sent {1} bytes": such an entry translates every
message of that form, and its msgstr says where the fields go.
"""

from __future__ import annotations

import ast
import gettext
import io
import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PO_FILE = Path(__file__).parents[1] / "locale" / "zh_CN" / "LC_MESSAGES" / "tinyparallel.po"
_FIELD = re.compile(r"\{(\d+)\}")
_DEPTH = 4  # fields may hold messages; so deep


def entries(content: str) -> dict[str, str]:
    """msgid → msgstr of a .po file; the header has the msgid "". Raises ValueError with the line.

    What the catalogue needs of the format: msgid, msgstr, continued strings and comments.
    """
    found: dict[str, str] = {}
    texts = {"msgid": "", "msgstr": ""}
    current = ""
    for number, line in enumerate(content.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word in texts:
            if word == "msgid" and current == "msgstr":
                found[texts["msgid"]] = texts["msgstr"]
            current, line = word, rest.strip()
            texts[word] = ""
        if not current or not (line.startswith('"') and line.endswith('"')):
            raise ValueError(f"{PO_FILE.name}:{number}: expected msgid, msgstr or a quoted string")
        texts[current] += str(ast.literal_eval(line))
    if current == "msgstr":
        found[texts["msgid"]] = texts["msgstr"]
    return found


def compiled(found: dict[str, str]) -> bytes:
    """A .mo file, as msgfmt makes it, of the entries that are translated."""
    pairs = sorted((k.encode(), v.encode()) for k, v in found.items() if v)
    count = len(pairs)
    keys, values = 28, 28 + 8 * count
    place = 28 + 16 * count
    tables: list[list[int]] = [[], []]
    blob = b""
    for table, column in zip(tables, (0, 1), strict=True):
        for pair in pairs:
            table += [len(pair[column]), place + len(blob)]
            blob += pair[column] + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, count, keys, values, 0, 0)
    return head + struct.pack(f"<{4 * count}I", *tables[0], *tables[1]) + blob


@cache
def _messages() -> dict[str, str]:
    try:
        return entries(PO_FILE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


@cache
def translations() -> gettext.NullTranslations:
    """The catalogue as gettext has it; one that knows nothing when the file is missing."""
    found = _messages()
    return (
        gettext.GNUTranslations(io.BytesIO(compiled(found)))
        if found
        else gettext.NullTranslations()
    )


def find(message: str) -> str | None:
    """The translation of exactly this msgid, if there is one."""
    words = translations().gettext(message) if message else message
    return None if words == message else words


def translate(message: str, depth: int = _DEPTH) -> str:
    """The message as far as the catalogue knows it: whole, by its form, or line by line."""
    known = find(message) or _by_form(message, depth) or _behind_a_label(message, depth)
    if known is not None or "\n" not in message:
        return known or message
    return "\n".join(
        line[: len(line) - len(line.lstrip())] + translate(line.lstrip(), depth)
        for line in message.split("\n")
    )


def _behind_a_label(message: str, depth: int) -> str | None:
    """ "4 ranks, SUM, float32: rank 2 sent …": what a case is called stands before what it did."""
    if depth == 0:
        return None
    label, mark, rest = message.partition(": ")
    while mark and "\n" not in label:
        known = find(rest) or _by_form(rest, depth)
        if known is not None:
            return f"{label}: {known}"
        more, mark, rest = rest.partition(": ")
        label = f"{label}: {more}"
    # "right in the default group, … (a rank sends to itself)": one cause behind another.
    first, mark, second = message.partition(" (")
    if mark and second.endswith(")") and (known := find(first)) is not None:
        return f"{known}（{translate(second[:-1], depth - 1)}）"
    return None


def _by_form(message: str, depth: int) -> str | None:
    if depth == 0:
        return None
    fields: dict[str, str] = {}
    for start, form, words in _forms():
        if start and not message.startswith(start):
            continue
        match = form.fullmatch(message)
        if match is None:
            continue
        for name, value in match.groupdict().items():
            fields[name] = translate(value, depth - 1)
        return _FIELD.sub(lambda field: fields[f"f{field[1]}"], words)
    return None


@cache
def _forms() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """(literal beginning, pattern, translation) of msgids with fields, the most literal first."""
    forms = []
    for message, words in _messages().items():
        if words and _FIELD.search(message):
            forms.append((len(_FIELD.sub("", message)), message, words))
    forms.sort(key=lambda form: -form[0])
    return tuple(
        (_FIELD.split(message)[0], re.compile("".join(_pattern(message))), words)
        for _, message, words in forms
    )


def _pattern(message: str) -> Iterator[str]:
    seen: set[str] = set()
    for place, part in enumerate(_FIELD.split(message)):
        if place % 2 == 0:
            yield re.escape(part)
        elif part in seen:
            yield f"(?P=f{part})"
        else:
            seen.add(part)
            yield f"(?P<f{part}>[^\\n]+?)"
