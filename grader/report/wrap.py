"""Lines for a terminal: Chinese may break between any two characters, English between words."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

#: No line begins with these, and none ends with those.
_CLOSING = frozenset("，。、；：？！）》」』”’…％,.;:?!)]}")
_OPENING = frozenset("（《「『“‘([{")


def wrap(words: Text, width: int) -> Text:
    """The same text, style and all, with line ends so that no line is wider than `width` cells.

    A word that is wider than a whole line is cut.
    """
    lines: list[Text] = []
    for line in words.split("\n", allow_blank=True):
        for part in line.divide(_breaks(line.plain, max(width, 2))):
            part.rstrip()
            lines.append(part)
    return Text("\n").join(lines)


def _breaks(line: str, width: int) -> list[int]:
    """Where new lines begin, as offsets into `line`."""
    found: list[int] = []
    used = 0
    for begin, end in _pieces(line):
        piece = line[begin:end]
        if used and used + cell_len(piece.rstrip()) > width:
            found.append(begin)
            used = 0
        for place, letter in enumerate(piece, start=begin):  # only a piece wider than a line is cut
            if used and not letter.isspace() and used + cell_len(letter) > width:
                found.append(place)
                used = 0
            used += cell_len(letter)
    return found


def _pieces(line: str) -> Iterator[tuple[int, int]]:
    """What may not be broken: a word with its blanks, or a Chinese character with its marks."""
    begin = 0
    for place in range(1, len(line)):
        before, after = line[place - 1], line[place]
        if after.isspace() or after in _CLOSING or before in _OPENING:
            continue
        if before.isspace() or cell_len(before) == 2 or cell_len(after) == 2:
            if line[begin:place].strip():  # the indentation belongs to the first word
                yield begin, place
                begin = place
    if line:
        yield begin, len(line)
