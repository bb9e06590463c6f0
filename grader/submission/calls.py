"""Calls and imports that an honest solution has no use for, found in its tokens.

Nothing is forbidden by this list and nothing is graded by it: a person looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from grader.submission.tokens import Token, encoding, tokens

_MODULE_NAMES: Final = (
    "_thread asyncio atexit builtins cffi code codecs ctypes faulthandler fcntl gc importlib "
    "inspect linecache marshal mmap multiprocessing pickle platform pty resource runpy select "
    "shutil signal site socket subprocess sysconfig tempfile threading tracemalloc urllib http "
    "ptrace psutil unittest pytest _pytest grader reference tests"
)
_MODULES: Final = frozenset(_MODULE_NAMES.split())
_CHAINS: Final = re.compile(
    r"os\.(_exit|abort|kill|killpg|fork\w*|exec\w*|spawn\w*|posix_spawn\w*|system|popen|pipe2?|open"
    r"|dup2?|write|putenv|environ|chmod|symlink|link|mkfifo|setsid|nice|sched_\w+|register_at_fork)"
    r"|sys\.(exit|modules|settrace|setprofile|_getframe|_current_frames|meta_path|path_hooks|path"
    r"|stdout|stderr|__stdout__|setrecursionlimit|setswitchinterval|addaudithook|exc_info)"
    r"|(torch|dist)\.(\w+\.)*(_C|from_file|load|save|cpp_extension|set_num_threads|_make_subclass"
    r"|get_backend|get_backend_config|shared_memory|set_default_dtype)(\.\w+)*"
    r"|(\w+\.)*(__subclasses__|__globals__|__code__|__closure__|__builtins__|__torch_function__"
    r"|__torch_dispatch__|__class__|__reduce__|__del__|_is_param|share_memory_|untyped_storage)"
    r"(\.\w+)*"
    r"|time\.sleep|SystemExit|KeyboardInterrupt|GeneratorExit|BaseException"
)
_BUILTINS: Final = re.compile(
    r"eval|exec|compile|__import__|open|globals|setattr|delattr|vars|breakpoint|input|exit|quit"
)
_STRINGS: Final = re.compile(
    r"/proc/|/dev/(shm|mem|fd)|/tmp\b|/etc/|results\.json|conftest|sitecustomize|usercustomize"
    r"|TINYPARALLEL|tinyparallel|__main__\.py|\.pth\b|PYTHONPATH|LD_PRELOAD|\bgrader\b"
)
_SHARED: Final = frozenset({"torch", "dist", "time", "os", "sys", "math", "np", "numpy", "random"})
_CUDA: Final = re.compile(r"asm|system|fopen|fork|exec\w*|socket|dlopen|dlsym|getenv|syscall|mmap")
_CUDA_WORDS: Final = re.compile(
    r"asm|__asm|__asm__|\w*no_sanitize\w*|\w*disable_sanitizer\w*|__SANITIZE_\w+|__has_feature"
)


def unusual(source: bytes, path: str, *ours: bytes) -> dict[str, int]:
    """What stands out in a file → its first line. ours: the kit's; what they use is usual."""
    found = _found(source, path)
    known = {what for file in ours for what in _found(file, path)}
    return {what: line for what, line in found.items() if what not in known}


def _found(source: bytes, path: str) -> dict[str, int]:
    listed = tokens(source, path)
    found: dict[str, int] = {}
    for what, line in _cuda(listed) if path.endswith(".cu") else _python(listed):
        found.setdefault(what, line)
    if not path.endswith(".cu") and (named := encoding(source)):
        found.setdefault(f"coding: {named}", 1)
    return found


def _cuda(listed: list[Token]) -> Iterator[tuple[str, int]]:
    for at, token in enumerate(listed):
        after = listed[at + 1].text if at + 1 < len(listed) else ""
        if token.kind == "name" and after == "(" and _CUDA.fullmatch(token.text):
            yield f"{token.text}()", token.line
        elif token.kind == "name" and _CUDA_WORDS.fullmatch(token.text):
            yield token.text, token.line
        if token.text == "include" and after not in ("", "<") and "simt" not in after:
            yield f"#include {after[:60]}", token.line


def _python(listed: list[Token]) -> Iterator[tuple[str, int]]:
    at = 0
    while at < len(listed):
        token = listed[at]
        if token.kind == "string":
            word = _STRINGS.search(token.text)
            # Docstrings may speak of what they like.
            if word is not None and not token.text.lstrip("rRbBuUfF").startswith(('"""', "'''")):
                yield repr(word[0]), token.line
            at += 1
            continue
        if token.kind != "name":
            at += 1
            continue
        chain, end = _chain(listed, at)
        before = listed[at - 1].text if at else ""
        after = listed[end].text if end < len(listed) else ""
        if token.text in ("import", "from"):
            module, after_module = _chain(listed, at + 1)
            yield from _imported(listed, token, module, after_module)
        elif before in ("def", "class") or (before == "." and not chain.startswith("__")):
            pass
        elif chain == "getattr" and after == "(" and _chain(listed, end + 1)[0] in _SHARED:
            yield f"getattr({_chain(listed, end + 1)[0]}, …)", token.line
        elif _CHAINS.fullmatch(chain) or (after == "(" and _BUILTINS.fullmatch(chain)):
            yield chain, token.line
        # Behind a colon stands the type of what gets a value, not what gets it.
        if after == "=" and before != ":" and chain.partition(".")[0] in _SHARED and "." in chain:
            yield f"{chain} = …", token.line
        at = max(end, at + 1)


def _chain(listed: list[Token], at: int) -> tuple[str, int]:
    """("torch.distributed.all_reduce", place behind it)."""
    names = []
    while at < len(listed) and listed[at].kind == "name":
        names.append(listed[at].text)
        if at + 1 >= len(listed) or listed[at + 1].text != ".":
            at += 1
            break
        at += 2
    return ".".join(names), at


def _imported(
    listed: list[Token], token: Token, module: str, after: int
) -> Iterator[tuple[str, int]]:
    if module.partition(".")[0] in _MODULES:
        yield f"import {module}", token.line
    if token.text == "from":
        for each in listed[after + 1 : after + 40]:
            if each.line != token.line:
                break
            if each.kind == "name" and _CHAINS.fullmatch(f"{module}.{each.text}"):
                yield f"{module}.{each.text}", token.line
    else:
        for each in listed[after : after + 40]:
            if each.line != token.line:
                break
            if each.kind == "name" and each.text in _MODULES:
                yield f"import {each.text}", token.line


def unusual_in(files: Mapping[str, bytes], *ours: Mapping[str, bytes]) -> dict[str, dict[str, int]]:
    """The same for all files of a student: path → what → line; paths without any are left out."""
    found = {
        path: unusual(content, path, *(own[path] for own in ours if path in own))
        for path, content in files.items()
    }
    return {path: each for path, each in found.items() if each}
