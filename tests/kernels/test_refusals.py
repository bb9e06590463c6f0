"""What a build for the CPU refuses: words that switch checks off, functions that are no kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernels.compilers import CompileError
from kernels.contracts import Contract
from kernels.library import KernelFile

CONTRACT = Contract("void f(float* y, int64_t n)")
KERNEL = 'extern "C" __global__ void f(float* y, int64_t n) {\n    %s\n}\n'
STORE = "y[threadIdx.x] = 1;"


def _run(folder: Path, text: str, **headers: str) -> torch.Tensor:
    path = folder / "mine" / "kernels.cu"
    path.parent.mkdir(exist_ok=True)
    path.write_text("#include <cstdint>\n" + text)
    for name, content in headers.items():
        (path.parent / f"{name}.cuh").write_text(content)
    y = torch.zeros(32)
    KernelFile(path, [CONTRACT]).launch("f", [y, 32], grid=1, block=32, mode="checked")
    return y


def _refused(folder: Path, text: str, **headers: str) -> str:
    with pytest.raises(CompileError) as caught:
        _run(folder, text, **headers)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('asm volatile("nop");', "asm"),
        ('__asm__("nop");', "__asm__"),
        ('#define JOIN(a, b) a##b\nJOIN(__as, m__)("nop");', "__asm__"),
        ('__attribute__((no_sanitize("thread"))) auto g = [] {};', "no_sanitize"),
        ("#ifdef __SANITIZE_THREAD__\n#endif", "__SANITIZE_THREAD__"),
        ("#if defined(__SANITIZE_\\\nTHREAD__)\n#endif", "__SANITIZE_THREAD__"),
        ("#ifdef __has_feature\n#endif", "__has_feature"),
        ("float* own = (float*)malloc(4);", "malloc"),
        ("float* own = new float[4];", "new"),
        ("#ifdef __has_extension\n#endif", "__has_extension"),
        ('# 1 "x.h" 1 3', "# 1"),
        ('/* */ %: \\\n7 "/usr/include/x.h" 3', "%: 7"),
        ('#line 9 "x.h"', "#line"),
        ("#pragma GCC system_header", "system_header"),
        ("const char32_t q = U'\"'; asm(\"nop\"); const char32_t r = U'\"';", "asm"),
        ("const wchar_t q = L'\"'; asm(\"nop\"); const char r = u8'\"';", "asm"),
        ("extern const int simt_checked;", "simt_checked"),
        ("#define J(a, b) a##b\nextern const int J(sim, t_checked);", "simt_checked"),
    ],
)
def test_words_that_switch_checks_off(tmp_path: Path, line: str, word: str) -> None:
    told = _refused(tmp_path, KERNEL % f"{STORE}\n{line}")
    number = 4 + line.startswith("#define")
    assert told.startswith(f"mine/kernels.cu:{number}: error: `{word}`: "), told
    assert ("inline assembly" in told) == ("asm" in word)


def test_such_words_in_a_header_beside_the_file(tmp_path: Path) -> None:
    text = '#include "a.cuh"\n' + KERNEL % "pause(); y[threadIdx.x] = 1;"
    headers = {"a": '#include "b.cuh"\n', "b": '\nstatic void pause() { asm("nop"); }\n'}
    assert "mine/b.cuh:2: error: `asm`: inline assembly" in _refused(tmp_path, text, **headers)


def test_such_words_in_comments_strings_and_system_headers_are_none(tmp_path: Path) -> None:
    text = (
        "#include <algorithm>\n#include <memory>\n#include <atomic>\n#include <cmath>\n"
        "// asm and no_sanitize it's\n/* __SANITIZE_THREAD__\n __has_feature */\n"
        'static const char* const text = "asm \\" no_sanitize";\n'
        "static const int big = 1'000'000; static const char quote = '\"', other = '\\'';\n"
    )
    body = "int plasma = text[0] == 'a' && big > 9 && quote; y[threadIdx.x] = plasma;"
    assert _run(tmp_path, text + KERNEL % body).sum() == 32


def test_assembly_for_gpus_alone_is_no_matter(tmp_path: Path) -> None:
    body = f'#ifdef __CUDA_ARCH__\nasm volatile("nop;");\n#endif\n{STORE}'
    assert _run(tmp_path, KERNEL % body).sum() == 32


def test_the_file_cannot_tell_how_it_is_built(tmp_path: Path) -> None:
    text = "#define J(a, b) a##b\n#if J(__SANITIZE_, THREAD__)\n#define CHEAT 1\n#endif\n"
    text += "#ifdef __clang__\n#if J(__has_, feature)(thread_sanitizer)\n#define CHEAT 1\n"
    text += "#endif\n#endif\n"
    body = "#ifdef CHEAT\ny[threadIdx.x] = 2;\n#else\ny[threadIdx.x] = 1;\n#endif"
    assert _run(tmp_path, text + KERNEL % body).sum() == 32


@pytest.mark.parametrize(
    "text",
    [
        'extern "C" void f(float* y, int64_t n) { %s }',
        "__global__ void f(float* y, int64_t n) { %s }",
        "void f(float* y, int64_t n) { %s }",
        '#define KERNEL extern "C" void\n__global__ void other() {}\n'
        "KERNEL f(float* y, int64_t n) { %s }",
        'extern "C" __global__ void f(float*, int64_t);\n'
        'extern "C" void f(float* y, int64_t n) { %s }',
    ],
)
def test_function_that_is_no_kernel(tmp_path: Path, text: str) -> None:
    told = _refused(tmp_path, text % STORE)
    assert told == 'f is not a kernel: `extern "C" __global__ void` is missing'


@pytest.mark.parametrize(
    "text",
    [
        '#define KERNEL extern "C" __global__ void\nKERNEL f(float* y, int64_t n) { %s }',
        'extern "C" { __global__ void __launch_bounds__(64) f(float* y, int64_t n) { %s } }',
        '__global__ void f2(float*);\nextern "C" void __global__ f(float* y, int64_t n) { %s }',
        'extern "C" __global__ void f(float*, int64_t);\n'
        'extern "C" __global__ void f(float* __restrict__ y, const int64_t n)\n{ %s }',
        '#define DEFINE(name) \\\n    extern "C" __global__ void name(float* y, int64_t n) { %s }\n'
        "DEFINE(f)",
    ],
)
def test_kernels_however_they_are_written(tmp_path: Path, text: str) -> None:
    assert _run(tmp_path, text % STORE).sum() == 32


def test_header_of_a_header_counts_as_content(tmp_path: Path) -> None:
    text = '#include "a.cuh"\n' + KERNEL % "y[threadIdx.x] = VALUE;"
    for value in (1, 2):
        b = f'#include "a.cuh"\n#define VALUE {value}\n'
        y = _run(tmp_path, text, a='#pragma once\n#include "b.cuh"\n', b=b)
        assert y.sum() == 32 * value
