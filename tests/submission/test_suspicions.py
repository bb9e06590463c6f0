"""Files that are alike, and calls that stand out; read as text, whatever the text is."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from grader.submission.calls import unusual
from grader.submission.similar import alike, fingerprints
from grader.submission.tokens import normalised, tokens

ROOT = Path(__file__).resolve().parents[2]
WHERE = "a1_collectives/collectives.py"
SOLVED = (ROOT / "reference" / WHERE).read_bytes()
STUB = (ROOT / "assignments" / WHERE).read_bytes()


def disguised(source: bytes) -> bytes:
    """Other names, other comments, other line breaks."""
    text = re.sub(rb"\b(rank|size|peer|tensor|works?|outputs?|inputs?)\b", rb"my_\1", source)
    text = re.sub(rb"#[^\n]*", b"# mine", text)
    return text.replace(b"\n\n", b"\n\n# another comment\n\n")


def test_a_disguised_copy_is_found_and_stubs_are_nobodys() -> None:
    other = (ROOT / "reference/a2_ring_all_reduce/ring.py").read_bytes()
    files = {
        "ann": {WHERE: SOLVED},
        "bob": {WHERE: disguised(SOLVED)},
        "cat": {WHERE: STUB},
        "dan": {WHERE: STUB + other},
    }
    found = alike(files, {WHERE: STUB})
    assert [(pair.first, pair.second) for pair in found] == [("ann", "bob")]
    assert found[0].share > 0.9


def test_a_part_of_a_file_is_found_in_a_larger_one() -> None:
    half = SOLVED[: len(SOLVED) // 2]
    larger = SOLVED + (ROOT / "reference/a2_ring_all_reduce/tree.py").read_bytes()
    (pair,) = alike({"ann": {WHERE: half}, "bob": {WHERE: larger}}, {WHERE: STUB})
    assert pair.share > 0.9


def test_what_everybody_writes_is_no_copy() -> None:
    usual = (ROOT / "reference/a2_ring_all_reduce/ring.py").read_bytes()
    own = sorted((ROOT / "reference").rglob("*.py"), key=lambda path: -path.stat().st_size)[:9]
    files = {str(n): {WHERE: usual + path.read_bytes()} for n, path in enumerate(own)}
    assert alike(files, {}) == []


def test_names_comments_and_docstrings_tell_nothing() -> None:
    first = b'def f(a):\n    """Docs."""\n    return a + 1  # one\n'
    second = b"def gg(bb):\n    return bb + 1\n"
    assert normalised(tokens(first, "x.py"), "x.py") == normalised(tokens(second, "x.py"), "x.py")
    assert fingerprints(b"", "x.py") == frozenset()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import ctypes", "import ctypes"),
        ("import os, gc", "import gc"),
        ("from os import _exit", "os._exit"),
        ("import os\nos._exit(0)", "os._exit"),
        ("os.environ['X'] = '1'", "os.environ"),
        ("raise SystemExit", "SystemExit"),
        ("dist.all_reduce = mine", "dist.all_reduce = …"),
        ("time.perf_counter = lambda: 0", "time.perf_counter = …"),
        ("torch.equal=lambda a, b: True", "torch.equal = …"),
        ("open('x', 'w')", "open"),
        ("eval('1')", "eval"),
        ("dist.get_backend()", "dist.get_backend"),
        ("().__class__.__base__.__subclasses__()", "__class__.__base__.__subclasses__"),
        ("path = '/dev/shm/x'", "'/dev/shm'"),
        ("f.__globals__['x']", "f.__globals__"),
        ("sys._getframe(1)", "sys._getframe"),
        ("torch.from_file('x')", "torch.from_file"),
        ("ｅｘｅｃ('1')", "exec"),
        ("getattr(os, '_ex' + 'it')(0)", "getattr(os, …)"),
        ("# coding: latin-1\nx = 1", "coding: iso8859-1"),
    ],
)
def test_what_honest_work_has_no_use_for_stands_out(source: str, what: str) -> None:
    found = unusual(source.encode(), "a.py")
    assert any(what in each for each in found), found


def test_a_file_in_another_encoding_is_read_in_it() -> None:
    text = "import os\nos._exit(0)\n"
    hidden = b"# coding: utf-7\n" + "".join(f"{ord(c):04x}" for c in text).encode()
    plain = b"# -*- coding: utf-7 -*-\n" + text.encode("utf-7").replace(b"_", b"+AF8-")
    found = unusual(plain, "a.py")
    assert {"coding: utf-7", "os._exit"} <= found.keys(), found
    assert "coding: utf-7" in unusual(hidden, "a.py")
    assert unusual(b"# coding: utf-8\nx = 1\n", "a.py") == {}
    assert unusual(b"# coding: rot13\nx = 1\n", "a.py") == {}
    assert unusual(b"# coding: no-such\nx = 1\n", "a.py") == {}


def test_what_the_kit_uses_itself_is_usual() -> None:
    for path in sorted((ROOT / "reference").rglob("*.py")):
        assert unusual(path.read_bytes(), "a.py", path.read_bytes()) == {}
    quiet = (
        '"""We read /proc/self and call os._exit."""\n# eval(open)\ndef f(input: int = 1): ...\n'
    )
    assert unusual(quiet.encode(), "a.py") == {}


def test_cuda_files_are_read_too() -> None:
    found = unusual(b'#include "/etc/passwd"\nvoid f() { system("x"); asm("trap;"); }', "k.cu")
    assert {"system()", "asm()"} <= found.keys() and any("/etc/passwd" in each for each in found)


def test_words_that_switch_checks_of_kernels_off_stand_out() -> None:
    source = b"""__attribute__((no_sanitize("thread"))) void f() { asm volatile("nop"); }
#ifdef __SANITIZE_THREAD__
#elif __has_feature(thread_sanitizer)
#endif
void g() { __asm__("nop"); }
// asm no_sanitize
const char* plasma = "asm";
"""
    assert unusual(source, "k.cu") == {
        "no_sanitize": 1,
        "asm": 1,
        "__SANITIZE_THREAD__": 2,
        "__has_feature": 3,
        "__asm__": 5,
    }
    assert unusual(source.split(b"\n", 5)[5], "k.cu") == {}


@pytest.mark.parametrize(
    "source",
    [
        b'"""' * 300_000,
        b"'\\" * 400_000,
        b"((((" * 200_000,
        b"rb" * 400_000,
        b'rb"""\\' * 150_000,
        b"/*" * 400_000,
        b"\xff\xfe\x00" * 300_000,
        b"a." * 400_000,
        b"import " * 140_000,
    ],
)
def test_no_file_makes_reading_it_long_or_deep(source: bytes) -> None:
    begin = time.process_time()
    for path in ("x.py", "x.cu"):
        fingerprints(source, path)
        unusual(source, path)
    assert time.process_time() - begin < 60
