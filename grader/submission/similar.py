"""Files of different students that are the same but for names and comments.

Fingerprints of token sequences, by winnowing [Schleimer, Wilkerson, Aiken 2003]: hashes of every
`LENGTH` tokens in a row, of which the least of every `WINDOW` neighbours are kept. Any match of
LENGTH + WINDOW - 1 tokens is found.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from grader.submission.tokens import normalised, tokens

LENGTH: Final = 16
WINDOW: Final = 6
#: Shared share of the smaller file's own fingerprints from which a pair is worth a look.
LIKE: Final = 0.6
#: Files with less of their own say nothing.
FEWEST: Final = 25
_COMMON: Final = 0.34
_CROWD: Final = 8


@dataclass(frozen=True)
class Pair:
    """Two whose files are alike. share: of the smaller one's fingerprints, in [0, 1]."""

    first: str
    second: str
    path: str
    share: float
    shared: int


def fingerprints(source: bytes, path: str) -> frozenset[bytes]:
    """Of one file."""
    words = normalised(tokens(source, path), path)
    hashes = [
        hashlib.blake2b("\0".join(words[at : at + LENGTH]).encode(), digest_size=8).digest()
        for at in range(len(words) - LENGTH + 1)
    ]
    if len(hashes) <= WINDOW:
        return frozenset(hashes)
    return frozenset(min(hashes[at : at + WINDOW]) for at in range(len(hashes) - WINDOW + 1))


def alike(files: Mapping[str, Mapping[str, bytes]], given: Mapping[str, bytes]) -> list[Pair]:
    """Pairs of students whose files are alike, the most alike first.

    files: student → path → content. given: what the stubs hold; it is nobody's work. What a third
    of a larger group writes in the same way is the usual way to write it.
    """
    paths = sorted({path for own in files.values() for path in own})
    pairs: list[Pair] = []
    for path in paths:
        theirs = fingerprints(given.get(path, b""), path)
        own = {
            student: fingerprints(held[path], path) - theirs
            for student, held in files.items()
            if path in held
        }
        pairs += _of_path(path, own)
    return sorted(pairs, key=lambda pair: (-pair.share, -pair.shared, pair.first, pair.second))


def _of_path(path: str, own: Mapping[str, frozenset[bytes]]) -> Iterable[Pair]:
    holders: dict[bytes, list[str]] = defaultdict(list)
    for student, prints in own.items():
        for each in prints:
            holders[each].append(student)
    identical: dict[frozenset[bytes], int] = Counter(own.values())
    usual = {
        each
        for each, students in holders.items()
        if len(own) >= _CROWD
        # Copies of one file are one way to write it, however many hand it in.
        and len({own[student] for student in students}) > _COMMON * len(identical)
        and len(identical) >= _CROWD
    }
    kept = {student: prints - usual for student, prints in own.items()}
    shared: Counter[tuple[str, str]] = Counter()
    for each, students in holders.items():
        if each not in usual:
            shared.update(combinations(sorted(students), 2))
    for (first, second), count in shared.items():
        least = min(len(kept[first]), len(kept[second]))
        if least >= FEWEST and count >= LIKE * least:
            yield Pair(first, second, path, count / least, count)
