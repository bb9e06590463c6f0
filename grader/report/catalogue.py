"""The Chinese gettext catalogue: `grader/locale/zh_CN/LC_MESSAGES/tinyparallel.po`.

The .po file is what is kept and edited. It is compiled in memory when a message is first asked for
(a few milliseconds), so that nothing has to be built after an edit and nothing can be out of date.

Messages with numbers in them are made where a check fails, long before anyone knows the language.
So a msgid may have numbered fields, "rank {0} sent {1} bytes": such an entry translates every
message of that form, and its msgstr says where the fields go. A message is tried whole before its
parts, and a part is only taken for one where punctuation sets it off: half a sentence in each
language is worse than a whole one in English.
"""

from __future__ import annotations

import ast
import gettext
import io
import re
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PO_FILE = Path(__file__).parents[1] / "locale" / "zh_CN" / "LC_MESSAGES" / "tinyparallel.po"
_FIELD = re.compile(r"\{(\d+)\}")
_DEPTH = 4  # fields may hold messages; so deep
_INDENT = 2  # positions of ranks; the lines of a traceback stand further in
_CHINESE = re.compile(r"[\u4e00-\u9fff，。：；（）、]")
_PRINTED = "It printed:"
_PHRASE = re.compile(r"\b[a-z]{2,} [a-z]{2,}|\ban? [A-Za-z]")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`")
_BRACKETED = re.compile(r"\([^()\n]*\)|\[[^\[\]\n]*\]|\{[^{}\n]*\}")
#: "src and 7", "4 or tensor("
_JOINED = re.compile(r"(?:\[[^\]]*\]|\S+)(?: (?:and|or) (?:\[[^\]]*\]|\S+))+")
#: What stands before a field that may hold a whole message.
_SETS_OFF = (": ", ". ", "; ", "(")
_NUMBER = "-?[0-9]+"
#: Longer lines are shown as they are; so is what takes more attempts (a message may be made to).
_LONGEST, _ATTEMPTS = 1500, 80
#: What stands behind a field that is a whole number.
_COUNTED = (" ranks", " more ranks")
#: What stands behind a first field that is one, where nothing follows: "4 GPUs".
_COUNTS = re.compile(
    r" (?:bytes|links|GPUs|NICs|leaves|spines|hosts each|(?:core|aggregation) switches"
    r"|commits|days|min)"
)


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
    """The message as far as the catalogue knows it: whole, by its form, or line by line.

    Lines of a traceback, and what the program printed itself, stay as they are.
    """
    if "\n" not in message:
        if len(message) > _LONGEST:
            return message
        if depth == _DEPTH:
            _attempts.left = _ATTEMPTS
        return _sentence(message, depth) or _behind_a_label(message, depth) or message
    if (known := find(message)) is not None:
        return known
    lines, quoted = [], False
    for line in message.split("\n"):
        indent = len(line) - len(line.lstrip())
        keep = quoted or indent > _INDENT
        lines.append(line if keep else line[:indent] + translate(line[indent:], depth))
        quoted = quoted or line == _PRINTED
    return "\n".join(lines)


def _sentence(message: str, depth: int) -> str | None:
    """One message by itself or by its form, or several that semicolons part, all of them known."""
    known = find(message) or _by_form(message, depth)
    if known is not None or "; " not in message:
        return known
    parts = [find(part) or _by_form(part, depth) for part in message.split("; ")]
    return "；".join(str(part) for part in parts) if all(parts) else None


def _behind_a_label(message: str, depth: int) -> str | None:
    """ "4 ranks, SUM, float32: rank 2 sent …": what a case is called stands before what it did."""
    if depth == 0:
        return None
    label, mark, rest = message.partition(": ")
    while mark:
        known = _sentence(rest, depth) if _is_whole(label) else None
        if known is not None:
            return f"{_label(label, depth)}：{known}"
        more, mark, rest = rest.partition(": ")
        label = f"{label}: {more}"
    # "right in the default group, … (a rank sends to itself)": one cause behind another.
    first, mark, second = message.partition(" (")
    if mark and second.endswith(")") and (known := find(first)) is not None:
        return f"{known}（{translate(second[:-1], depth - 1)}）"
    return None


def _label(label: str, depth: int) -> str:
    """What a case is called, a list of words: each by itself, shapes and dtypes as they are."""
    if _is_code(label):
        return label
    parts = [part.split(": ") for part in _items(label)]
    words = [[_word(word, depth) for word in part] for part in parts]
    alone = len(parts) == 1 or any(
        new == old and _is_english(old)
        for old_part, new_part in zip(parts, words, strict=True)
        for old, new in zip(old_part, new_part, strict=True)
    )
    whole = _sentence(label, depth) if alone else find(label)
    if whole is not None:
        return whole
    return label if words == parts else "，".join("：".join(part) for part in words)


def _word(word: str, depth: int) -> str:
    return (None if _is_code(word) else _sentence(word, depth)) or word


def _items(text: str) -> list[str]:
    """Parts between commas that stand in no brackets."""
    parts, begin, open_brackets = [], 0, 0
    for place, letter in enumerate(text):
        open_brackets += (letter in "([{") - (letter in ")]}")
        if open_brackets == 0 and text.startswith(", ", place):
            parts.append(text[begin:place])
            begin = place + 2
    return [*parts, text[begin:]]


def _is_code(value: str) -> bool:
    """A dict, a list, a shape, a string in quotes: nothing in it is for the catalogue."""
    return value.startswith(("{", "[", "(", "'", '"', "`"))


def _is_whole(value: str) -> bool:
    """Whether every bracket is closed, so that the value is not cut out of a dict or a shape."""
    bare = _QUOTED.sub("", value)
    return all(bare.count(left) == bare.count(right) for left, right in ("()", "[]", "{}"))


def _bare(value: str) -> str:
    """Without what stands in quotes or brackets."""
    bare = _QUOTED.sub("", value)
    while (inner := _BRACKETED.sub("", bare)) != bare:
        bare = inner
    return bare


def _is_value(value: str) -> bool:
    """One value, not a stretch of several sentences."""
    bare = _bare(value)
    alone = _is_whole(value) and ": " not in bare and "; " not in bare
    return alone or _is_cut(value) or _JOINED.fullmatch(value) is not None


def _is_cut(value: str) -> bool:
    """Code that was too long to be shown whole, so that brackets may be open."""
    return _is_code(value) and value.endswith("…")


def _is_english(value: str) -> bool:
    """Words that nobody has translated, beside what stands in quotes or brackets."""
    return not _is_cut(value) and _PHRASE.search(_bare(value)) is not None


class _Attempts(threading.local):
    """How often one line may still be compared with all forms."""

    left = _ATTEMPTS


_attempts = _Attempts()


def _by_form(message: str, depth: int) -> str | None:
    if depth == 0 or _attempts.left <= 0:
        return None
    _attempts.left -= 1
    for form in _forms():
        if form.start and not message.startswith(form.start):
            continue
        found = form.fields(message)
        if found is None:
            continue
        if not all(_is_value(found[name]) for name in form.values):
            continue
        if not all(_is_whole(found[name]) for name in form.labels):
            continue
        fields = {
            name: _label(value, depth - 1) if name in form.labels else _field(value, depth - 1)
            for name, value in found.items()
        }
        if any(fields[n] == found[n] and _is_english(found[n]) for n in form.values):
            continue  # half of the sentence would be English
        return _filled(form.words, fields)
    return None


def _filled(words: str, fields: Mapping[str, str]) -> str:
    """The words with their fields; no blank is left between two Chinese characters."""
    pieces = [
        piece if place % 2 == 0 else fields[piece]
        for place, piece in enumerate(_FIELD.split(words))
    ]
    filled = pieces[0]
    for piece in pieces[1:]:
        if filled.endswith(" ") and _CHINESE.match(piece) and _CHINESE.match(filled[-2:]):
            filled = filled[:-1]
        elif piece.startswith(" ") and _CHINESE.match(piece[1:]) and _CHINESE.match(filled[-1:]):
            piece = piece[1:]
        filled += piece
    return filled


def _field(value: str, depth: int) -> str:
    if _is_code(value) and not _is_english(value):
        return value
    if _JOINED.fullmatch(value):
        return value.replace(" and ", " 和 ").replace(" or ", " 或 ")
    return translate(value, depth)


@dataclass(frozen=True)
class _Form:
    """A msgid with fields. start: its literal beginning. labels: fields that name a case.

    names: of the fields that may hold anything; between them stand pieces, patterns of literals and
    numbers. same: pairs of fields of one value. values: fields that hold one value each, and no
    sentence.
    """

    start: str
    names: tuple[str, ...]
    pieces: tuple[re.Pattern[str], ...]
    words: str
    labels: frozenset[str]
    values: frozenset[str]
    same: tuple[tuple[str, str], ...]

    def fields(self, message: str) -> dict[str, str] | None:
        """What a message of this form holds, by field; None for a message of another one.

        Each piece is taken where it first occurs behind the one before, so the time is that of
        one look for each: no message makes it try all ways of cutting it.
        """
        first = self.pieces[0].match(message)
        if first is None:
            return None
        found = first.groupdict()
        place = first.end()
        for number, name in enumerate(self.names, start=1):
            piece = self.pieces[number].search(message, place + 1)
            if piece is None:
                return None
            found |= {name: message[place : piece.start()]} | piece.groupdict()
            place = piece.end()
        if place != len(message) or any(found[one] != found[two] for one, two in self.same):
            return None
        return {name.removeprefix("f"): value for name, value in found.items()}


@cache
def _forms() -> tuple[_Form, ...]:
    """The msgids with fields, the most literal first."""
    forms = [
        (len(_FIELD.sub("", message)), message, words)
        for message, words in _messages().items()
        if words and _FIELD.search(message)
    ]
    forms.sort(key=lambda form: -form[0])
    return tuple(_form(message, words) for _, message, words in forms)


def _form(message: str, words: str) -> _Form:
    parts = _FIELD.split(message)
    labels, values = set(), set()
    names: list[str] = []
    pieces = [""]
    same: list[tuple[str, str]] = []
    seen: set[str] = set()
    for place, part in enumerate(parts):
        if place % 2 == 0:
            pieces[-1] += re.escape(part)
            continue
        before, after = parts[place - 1], parts[place + 1]
        name = f"f{part}"
        if part in seen:
            name = f"f{part}_{place}"
            same.append((f"f{part}", name))
        seen.add(part)
        number = before.endswith(("rank ", "Rank ")) or after.startswith(_COUNTED)
        number = number or (place == 1 and not before and _COUNTS.fullmatch(after) is not None)
        if number:
            pieces[-1] += f"(?P<{name}>{_NUMBER})"
        else:
            names.append(name)
            pieces.append("")
        if place == 1 and not before and after.startswith(":"):
            labels.add(part)
        elif not before.endswith(_SETS_OFF) and not after.startswith(";"):
            values.add(part)
    if len(pieces) > 1:
        pieces[-1] += r"\Z"
    patterns = tuple(re.compile(piece) for piece in pieces)
    return _Form(
        parts[0], tuple(names), patterns, words, frozenset(labels), frozenset(values), tuple(same)
    )
