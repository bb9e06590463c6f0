"""Builds of a student's kernels.cu: for the CPU with any C++ compiler, for GPUs with nvcc.

What goes in decides the name of what comes out, so an unchanged file is never built again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels import cache, compilers, elf, native, refusals
from kernels.compilers import CompileError, Compiler

_COMMON = [
    *("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    *("-fno-strict-aliasing", "-fno-math-errno", "-ffp-contract=off", "-w"),
]
_GCC = [
    *("-fno-extern-tls-init", "-fno-gnu-unique"),
    *("-fmax-errors=4", "-fdiagnostics-color=never"),
]
_CLANG = ["-ferror-limit=4", "-fno-color-diagnostics"]
# DWARF 4: binutils of Debian 12 takes some lines of `#line` files for the unit's in DWARF 5.
_FAST = ["-O2", "-g1", "-gdwarf-4"]
# The copies that a kernel calls by name stay calls, which are led to the hooks.
_COPIES = ("memcpy", "memmove", "memset")
_CHECKED = ["-O1", "-g", "-gdwarf-4", *(f"-fno-builtin-{name}" for name in _COPIES)]
# clang drops parts of a copied struct before its accesses are instrumented, unless told not to
# optimize at all; it also leaves out reads that a write to the same place follows.
_CHECKED_CLANG = ["-O0", "-g", "-gdwarf-4", "-mllvm", "-tsan-instrument-read-before-write=1"]
_LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_DYNAMIC = "simt_dynamic_shared"
#: A file beside a build, with the symbols of the student's variables.
_VARIABLES = "variables.txt"
#: Bytes of `__shared__` variables of one kernel, as ptxas has it.
MAX_STATIC_SHARED = 48 << 10


@dataclass(frozen=True)
class CpuBuild:
    """A shared library, its `__shared__` and its `__device__` variables: (name, offset, nbytes)."""

    path: Path
    shared: tuple[tuple[str, int, int], ...]
    device: tuple[tuple[str, int, int], ...]
    checked: bool


@dataclass(frozen=True)
class Source:
    """A kernels.cu as it was when it was read.

    shown: the name that messages use, relative to `folder`, where its text lies too.
    prototypes: what must be in it, each a C++ prototype of a kernel that is launched by name.
    """

    folder: Path
    shown: str
    text: str
    prototypes: tuple[str, ...]

    @staticmethod
    def read(path: Path, prototypes: Sequence[str]) -> Source:
        """The file at `path`, shown as assignment/kernels.cu."""
        path = path.absolute()
        folder = path.parent.parent
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        return Source(folder, path.relative_to(folder).as_posix(), text, tuple(prototypes))

    @property
    def names(self) -> list[str]:
        """Names of the kernels."""
        return [kernel_name(prototype) for prototype in self.prototypes]

    def parts(self) -> list[str]:
        """All text that decides what is built: the file's and that of headers beside it."""
        return [self.shown, str(self.folder), self.text, *self.prototypes, *self.headers().values()]

    def own_files(self) -> dict[str, str]:
        """All text of the student's, by the names that messages use."""
        headers = self.headers().items()
        named = {os.path.relpath(path, self.folder): text for path, text in headers}
        return {self.shown: self.text} | named

    def headers(self) -> dict[Path, str]:
        """The text of each header beside the file that it, or one of them, includes."""
        beside = (self.folder / self.shown).parent
        found: dict[Path, str] = {}
        waiting = [(beside, self.text)]
        while waiting:
            folder, text = waiting.pop()
            for name in sorted(set(_LOCAL_INCLUDE.findall(text))):
                for path in (Path(os.path.normpath(each / name)) for each in (folder, beside)):
                    if path not in found and path.is_file():
                        found[path] = path.read_text(encoding="utf-8", errors="replace")
                        waiting.append((path.parent, found[path]))
        return dict(sorted(found.items()))


def kernel_name(prototype: str) -> str:
    """ "f" of "void f(float* x)"."""
    match = re.match(r"\s*void\s+(\w+)\s*\(", prototype)
    if match is None:
        raise ValueError(f"no prototype of a kernel: {prototype!r}")
    return match[1]


def build_cpu(source: Source, *, checked: bool) -> CpuBuild:
    """Build for the CPU, or find the build. Raises `CompileError` with the compiler's message."""
    compiler = compilers.cxx()
    flags = _flags(compiler, checked)
    parts = [native.sources_digest(), compiler.identity, *flags, *source.parts()]
    folder = cache.build_once(
        f"cpu-{cache.digest(parts)}", lambda scratch: _build_cpu(source, compiler, flags, scratch)
    )
    library = folder / "module.so"
    shared = tuple(
        (symbol.name if symbol.name.startswith("simt_") else elf.plain_name(symbol.name),
         symbol.offset, symbol.nbytes)
        for symbol in elf.thread_local_symbols(library)
        if symbol.defined and symbol.nbytes > 0
    )  # fmt: skip
    own = set((folder / _VARIABLES).read_text().splitlines())
    device = tuple(
        (elf.plain_name(symbol.name), symbol.offset, symbol.nbytes)
        for symbol in elf.variables(library)
        if symbol.name in own and symbol.nbytes > 0
    )
    return CpuBuild(library, shared, device, checked)


def build_cubin(source: Source, *, arch: str, extra: Sequence[str] = ()) -> bytes:
    """Build for GPUs of `arch` ("sm_90") with nvcc. Raises `NoCompiler` or `CompileError`."""
    compiler = compilers.nvcc()
    # The launcher finds kernels by the names in their prototypes.
    flags = ["-std=c++17", "-O3", "-lineinfo", f"-arch={arch}", *extra]
    parts = [compiler.identity, *flags, *source.parts()]

    def build(scratch: Path) -> None:
        unit = scratch / "unit.cu"
        unit.write_text(f'#line 1 "{source.shown}"\n{source.text}\n')
        beside = (source.folder / source.shown).parent
        told = compiler.run(
            [*flags, "-cubin", "-I", str(beside), "-o", str(scratch / "module.cubin"), str(unit)],
            source.folder,
            seconds=180.0,
        )
        (scratch / "told.txt").write_text(told)

    folder = cache.build_once(f"gpu-{cache.digest(parts)}", build)
    return (folder / "module.cubin").read_bytes()


def _flags(compiler: Compiler, checked: bool) -> list[str]:
    clang = compiler.kind == "clang"
    bounds = "array-bounds" if clang else "bounds"
    flags = [*_COMMON, *(_CLANG if clang else _GCC)]
    if not checked:
        flags += _FAST
    else:
        flags += _CHECKED_CLANG if clang else _CHECKED
        flags += [f"-fsanitize=thread,{bounds},alignment"]
        if _knows_volatile(compiler):
            told = ["-mllvm", "-tsan-distinguish-volatile=1"]
            flags += told if clang else ["--param=tsan-distinguish-volatile=1"]
        # What a thread never sets holds huge numbers, and not the zeros of a fresh stack.
        if compiler.major >= 12:
            flags += ["-ftrivial-auto-var-init=pattern"]
    return flags


def _knows_volatile(compiler: Compiler) -> bool:
    """Whether checked builds are told which accesses are volatile."""
    return compiler.major >= (12 if compiler.kind == "clang" else 11)


def _unit(source: Source, compiler: Compiler, checked: bool) -> str:
    """The file that is compiled: the student's text, then what makes its kernels callable."""
    # clang copies structs, of promised alignments, by calls of memcpy.
    structs = compiler.kind == "clang"
    lines = ['#include "simt.h"', f'#line 1 "{source.shown}"', source.text]
    lines += [f'#line 1 "{refusals.LAUNCH}{source.shown} is launched"']
    for prototype, name in zip(source.prototypes, source.names, strict=True):
        parameters = prototype[prototype.index("(") :].strip().rstrip(";")
        lines.append(f"static void (*const must_be_{name}){parameters} = {name};")
    entries = ", ".join(f'simt_entry("{name}", must_be_{name})' for name in source.names)
    visible = 'extern "C" __attribute__((visibility("default"))) const'
    lines += [
        f"{visible} SimtEntry simt_entries[] = {{{entries}}};",
        f"{visible} int simt_entry_count = {len(source.names)};",
        f"{visible} int simt_checked = {int(checked)};",
        f"{visible} int simt_copies_structs = {int(structs)};",
        f"{visible} int simt_knows_volatile = {int(_knows_volatile(compiler))};",
    ]
    return "\n".join(lines) + "\n"


def _build_cpu(source: Source, compiler: Compiler, flags: Sequence[str], scratch: Path) -> None:
    unit, made = scratch / "unit.cpp", scratch / "unit.o"
    checked = "-O2" not in flags
    unit.write_text(_unit(source, compiler, checked))
    beside = (source.folder / source.shown).parent
    include = ["-I", str(native.INCLUDE), "-iquote", str(beside)]
    try:
        refusals.refuse_questions(source.own_files())
        preprocessed = compiler.run([*flags, *include, "-E", str(unit)], source.folder)
        refusals.refuse_preprocessed(preprocessed, source.folder, source.names)
        compiler.run([*flags, *include, "-c", str(unit), "-o", str(made)], source.folder)
        refusals.refuse_mangled(made, source.names)
        if checked:
            # With clang++, copies of structs are plain calls of memcpy too.
            wrapped = scratch / "wrapped.o"
            wrap = ",".join(f"--wrap={name}" for name in _COPIES)
            options = ["-r", "-nostdlib", f"-Wl,{wrap}", str(made), "-o", str(wrapped)]
            compiler.run(options, source.folder)
            wrapped.replace(made)
        _refuse_large(source, made)
        _note_variables(made, scratch / _VARIABLES)
        # Every `extern __shared__ T name[]` is a name of the same memory.
        dynamic = [s.name for s in elf.thread_local_symbols(made) if not s.defined]
        names = [f"-Wl,--defsym={name}={_DYNAMIC}" for name in dynamic]
        runtime = ["-Wl,--whole-archive", str(native.library()), "-Wl,--no-whole-archive"]
        output = ["-o", str(scratch / "module.so"), "-lm"]
        compiler.run(
            ["-shared", "-Wl,-z,defs", str(made), *runtime, *names, *output], source.folder
        )
    except CompileError as error:
        raise CompileError(_tidy(str(error), unit)) from None
    unit.unlink()
    made.unlink()


def _refuse_large(source: Source, made: Path) -> None:
    """What ptxas says of a `__shared__` variable that no kernel can have."""
    for symbol in elf.thread_local_symbols(made):
        if symbol.defined and symbol.nbytes > MAX_STATIC_SHARED:
            raise CompileError(
                f"{source.shown}: error: `{elf.plain_name(symbol.name)}` uses too much shared data "
                f"({symbol.nbytes} bytes, {MAX_STATIC_SHARED} at most)"
            )


def _note_variables(made: Path, file: Path) -> None:
    """Write down which variables are the student's, before the runtime's join them."""
    launch = ("simt_", "_ZGV")  # what `_unit` adds, and guards of the compiler's
    names = [each.name for each in elf.variables(made) if not each.name.startswith(launch)]
    file.write_text("\n".join(names) + "\n")  # never empty: such files do not travel


def _tidy(message: str, unit: Path) -> str:
    """The compiler's message without lines about the kit's own file."""
    lines = [
        line
        for line in message.splitlines()
        if not (line.startswith(("In file included from", "                 from"))
                and str(unit) in line)
    ]  # fmt: skip
    return "\n".join(line.replace(str(unit), "the kit's launch code") for line in lines).strip()
