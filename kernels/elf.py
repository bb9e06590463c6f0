"""Just enough of ELF to find `__shared__` variables: the thread-local symbols of a file."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

_SYMTAB, _TLS = 2, 6


@dataclass(frozen=True)
class Symbol:
    """A symbol; where it is thread-local, offset and nbytes are those within that segment."""

    name: str
    offset: int
    nbytes: int
    defined: bool


def thread_local_symbols(path: Path) -> list[Symbol]:
    """All thread-local symbols in the symbol table of a 64-bit little-endian ELF file."""
    return [symbol for symbol, kind in _symbols(path) if kind == _TLS]


def _symbols(path: Path) -> list[tuple[Symbol, int]]:
    """The symbol table, each symbol with its type."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, table + entry_size * i) for i in range(count)
    ]
    symbols = []
    for _, kind, _, _, offset, size, link, _, _, width in sections:
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, width):
            name, info, _, section, value, nbytes = struct.unpack_from("<IBBHQQ", data, at)
            begin = names + name
            text = data[begin : data.index(b"\0", begin)].decode()
            symbols.append((Symbol(text, value, nbytes, section != 0), info & 15))
    return symbols


def symbol_names(path: Path) -> set[str]:
    """Names of all that a 64-bit little-endian ELF file defines."""
    return {symbol.name for symbol, _ in _symbols(path) if symbol.defined}


def plain_name(symbol: str) -> str:
    """The variable's own name: "tile" of `_ZZ6kernelE4tile` and of `tile.0`."""
    if symbol.startswith("_ZGV"):  # the compiler's guard of a variable
        return symbol
    if symbol.startswith("_ZZ"):
        # The local name stands after the last E, as <length><name>.
        for match in re.finditer(r"E(\d+)", symbol):
            begin, length = match.end(), int(match[1])
            if re.fullmatch(r"(_\d+)?", symbol[begin + length :]):
                return symbol[begin : begin + length]
    if plain := re.fullmatch(r"_ZL?(\d+)(\w+)", symbol):
        return plain[2][: int(plain[1])]
    return symbol.split(".")[0]
