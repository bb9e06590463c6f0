"""What a kernels.cu must not hold when it is built for the CPU, and what its kernels must be.

Looked for in what the preprocessor leaves of the student's own files, where macros and pasted
tokens have become what they stand for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kernels import elf, native
from kernels.compilers import CompileError

#: What `__global__` is when the file is preprocessed; compilers pass over it.
MARK = "simt_global"
#: How the name begins that the kit's own part of the file has.
LAUNCH = "how "
_ASSEMBLY = "inline assembly cannot run on the CPU: say it in C++, or by CUDA's functions"
_HEAP = "threads get no memory of their own: use tensors, __shared__ memory and local variables"
_MARKED = "only the preprocessor says which file a line is of"
_OURS = "names that begin so are the kit's"
_WHY = {"assembly": _ASSEMBLY, "heap": _HEAP, "marker": _MARKED, "ours": _OURS}
_SANITIZER = "it would keep the checks from looking at the kernels' memory"
_WORDS = re.compile(
    r"(?P<assembly>\b(?:asm|__asm|__asm__)\b)|(?P<heap>\b(?:malloc|calloc)(?= *\()|\bnew\b)"
    r"|\b\w*(?:no_sanitize|disable_sanitizer)\w*"
    r"|\b__SANITIZE_\w+|\b__has_(?:feature|extension)\b"
    r"|\bsimt_(?:checked|entries|entry_count|launch|version|copies_structs|knows_volatile)\b"
    r"|\bsimt_(?:shared_anchor|dynamic_shared)\b"
)
#: Of these nothing is left by the preprocessor, which has answered them, or the kit's own headers
#: use them too.
_QUESTIONS = re.compile(
    r"\b__SANITIZE_\w+|\b__has_(?:feature|extension)\b|\bsystem_header\b"
    r"|(?P<ours>\b(?:simt|SIMT|Simt)(?:_\w*|[A-Z]\w*)?\b)"
    r"|(?P<marker>^\s*(?:#|%:)\s*(?:line\b|\d+))"
)
_MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)\s+"((?:[^"\\]|\\.)*)"([ \d]*)')
_NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\1"'
    r"|\"(?:[^\"\\\n]|\\.)*\"|(?:\b(?:u8|u|U|L)|(?<!\w))'(?:[^'\\\n]|\\.)+'",
    re.DOTALL,
)


def refuse_questions(files: Mapping[str, str]) -> None:
    """Raise `CompileError` for a file (shown name -> text) that asks how it is built."""
    for shown, text in files.items():
        lines = enumerate(_plain(text).split("\n"), 1)
        _refuse(((shown, i, line) for i, line in lines), _QUESTIONS)


def refuse_preprocessed(text: str, folder: Path, kernels: Sequence[str]) -> None:
    """Raise `CompileError` for a word of `_WORDS` in preprocessed text, or a kernel that is none.

    folder: what names of files are relative to. kernels: names of what is launched.
    """
    own = list(_own_lines(text.replace(f'"{folder}/', '"')))
    code = _plain("\n".join(line for _, _, line in own))
    _refuse(
        (shown, number, line)
        for (shown, number, _), line in zip(own, code.split("\n"), strict=True)
    )
    for kernel in kernels:
        if re.search(rf"\b{kernel}\b", code) and not _is_global(code, kernel):
            raise _no_kernel(kernel)


def refuse_mangled(built: Path, kernels: Sequence[str]) -> None:
    """Raise `CompileError` for a kernel whose name a GPU's driver would not find in the file."""
    names = elf.symbol_names(built)
    for kernel in kernels:
        if kernel not in names:
            raise _no_kernel(kernel)


def _no_kernel(name: str) -> CompileError:
    return CompileError(f'{name} is not a kernel: `extern "C" __global__ void` is missing')


def _refuse(lines: Iterable[tuple[str, int, str]], words: re.Pattern[str] = _WORDS) -> None:
    for shown, number, line in lines:
        found = words.search(line)
        if found is not None:
            groups = found.groupdict()
            why = next((why for group, why in _WHY.items() if groups.get(group)), _SANITIZER)
            raise CompileError(f"{shown}:{number}: error: `{found[0].strip()}`: {why}")


def _plain(text: str) -> str:
    """`text` with comments and strings blanked, and lines that end in a backslash joined.

    It keeps its number of lines.
    """

    def blank(found: re.Match[str]) -> str:
        return " " + "\n" * found[0].count("\n")

    def join(found: re.Match[str]) -> str:
        parts = re.split(r"\\[ \t]*\n", found[0])
        return "".join(parts) + "\n" * (len(parts) - 1)

    joined = re.sub(r"(?:[^\n]*\\[ \t]*\n)+[^\n]*", join, text)
    return _NOT_CODE.sub(blank, joined)


def _own_lines(text: str) -> Iterator[tuple[str, int, str]]:
    """(file, line, text) of what is neither the system's nor the kit's."""
    kit = ("<", LAUNCH, str(native.INCLUDE))
    own, shown, number = False, "", 0
    for line in text.split("\n"):
        marker = _MARKER.match(line)
        if marker is None:
            if own:
                yield shown, number, line
            number += 1
            continue
        number, shown, system = int(marker[1]), marker[2], "3" in marker[3].split()
        # The student's own folder has been taken from its names: they are relative.
        own = not shown.startswith(kit) and not (system and shown.startswith("/"))


def _is_global(code: str, kernel: str) -> bool:
    """Whether the function is declared with `__global__`, and its definition too."""
    found = False
    for place in re.finditer(rf"\b{kernel}\b\s*\)?\s*\(([^()]*)\)\s*(\{{)?", code):
        head = re.split(r"[;{}]", code[: place.start()])[-1]
        marked = MARK in head
        # A function of the same name in a namespace, or an overload of it, is no kernel.
        if place[2] and not marked and "extern" in head:
            return False
        found = found or marked
    return found
