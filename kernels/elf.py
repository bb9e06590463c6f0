"""Just enough of ELF to find a kernels.cu's variables.

Those that are `__shared__` are thread-local, those that are `__device__` ordinary ones.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

_SYMTAB, _OBJECT, _TLS = 2, 1, 6
_WRITE = 1


@dataclass(frozen=True)
class Symbol:
    """A symbol; where it is thread-local, offset and nbytes are those within that segment.

    section: the name of the one that it is in, "" when it is not defined here.
    """

    name: str
    offset: int
    nbytes: int
    section: str
    writable: bool

    @property
    def defined(self) -> bool:
        """Whether the file holds it, and does not only use it."""
        return self.section != ""


def thread_local_symbols(path: Path) -> list[Symbol]:
    """All thread-local symbols in the symbol table of a 64-bit little-endian ELF file."""
    return [symbol for symbol, kind in _symbols(path) if kind == _TLS]


def variables(path: Path) -> list[Symbol]:
    """All variables of a 64-bit little-endian ELF file that can be written, but thread-local ones.

    offset: from the start of the section, or, in a library, of the module.
    """
    return [
        symbol
        for symbol, kind in _symbols(path)
        if kind == _OBJECT and symbol.writable and not symbol.section.startswith(".data.rel.ro")
    ]


def _symbols(path: Path) -> list[tuple[Symbol, int]]:
    """The symbol table, each symbol with its type."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count, naming = struct.unpack_from("<HHH", data, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, table + entry_size * i) for i in range(count)
    ]
    symbols = []

    def text(at: int) -> str:
        return data[at : data.index(b"\0", at)].decode()

    for _, kind, _, _, offset, size, link, _, _, width in sections:
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, width):
            name, info, _, section, value, nbytes = struct.unpack_from("<IBBHQQ", data, at)
            where, writable = "", False
            if 0 < section < len(sections):
                where = text(sections[naming][4] + sections[section][0])
                writable = bool(sections[section][2] & _WRITE)
            elif section:  # an absolute or a common symbol
                where = "*"
            symbol = Symbol(text(names + name), value, nbytes, where, writable)
            symbols.append((symbol, info & 15))
    return symbols


def symbol_names(path: Path) -> set[str]:
    """Names of all that a 64-bit little-endian ELF file defines."""
    return {symbol.name for symbol, _ in _symbols(path) if symbol.defined}


def plain_name(symbol: str) -> str:
    """The variable's own name: "tile" of `_ZZ6kernelE4tile`, `_ZN3own4tileE` and `tile.0`."""
    if symbol.startswith("_ZGV"):  # the compiler's guard of a variable
        return symbol
    if symbol.startswith("_ZZ"):
        # The local name stands after the last E, as <length><name>.
        for match in re.finditer(r"E(\d+)", symbol):
            begin, length = match.end(), int(match[1])
            if re.fullmatch(r"(_\d+)?", symbol[begin + length :]):
                return symbol[begin : begin + length]
    if symbol.startswith("_ZN"):
        rest, last = symbol[3:], ""
        while part := re.match(r"L?(\d+)", rest):
            begin, length = part.end(), int(part[1])
            last, rest = rest[begin : begin + length], rest[begin + length :]
        if last:
            return last
    if plain := re.fullmatch(r"_ZL?(\d+)(\w+)", symbol):
        return plain[2][: int(plain[1])]
    return symbol.split(".")[0]
