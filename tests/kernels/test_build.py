"""Builds: the compiler's own message, the cache, two at once, what is missing said plainly."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from kernels import build, cache, compilers, native
from kernels.build import Source
from kernels.compilers import CompileError, NoCompiler
from kernels.contracts import FILES, REDUCE_ADD
from kernels.library import ArgumentError, KernelFile
from kernels.ops import Kernels

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "reference" / "a2_ring_all_reduce" / "kernels.cu"
PROTOTYPES = [contract.prototype for contract in REDUCE_ADD]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The reference's reduce_add in a folder of its own."""
    path = tmp_path / "a2_ring_all_reduce" / "kernels.cu"
    path.parent.mkdir()
    return Path(shutil.copy(REFERENCE, path))


def _build(path: Path, checked: bool = True) -> build.CpuBuild:
    return build.build_cpu(Source.read(path, PROTOTYPES), checked=checked)


def _line(path: Path, text: str) -> int:
    lines = path.read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


def test_compile_error_is_the_compilers_own_with_the_students_line(copy: Path) -> None:
    copy.write_text(copy.read_text().replace("Pack<T> a = *re", "Pack<T> a = *rre", 1))
    with pytest.raises(CompileError) as caught:
        _build(copy)
    message = str(caught.value)
    place = rf"^a2_ring_all_reduce/kernels\.cu:{_line(copy, 'rreinterpret')}:\d+: error: "
    assert re.search(place, message, re.MULTILINE), message
    assert "rreinterpret_cast" in message
    assert "unit.cpp" not in message
    assert str(cache.cache_folder()) not in message


def test_changed_signature_and_missing_kernel_are_refused(copy: Path) -> None:
    text = copy.read_text()
    copy.write_text(text.replace("reduce_add_fp32(float* dst,", "reduce_add_fp32(double* dst,"))
    with pytest.raises(CompileError, match="reduce_add_fp32"):
        _build(copy)
    copy.write_text(text.replace("void reduce_add_bf16", "void reduce_add_bf16s"))
    with pytest.raises(CompileError, match="reduce_add_bf16"):
        _build(copy)


def test_call_of_a_function_that_does_not_exist_names_it(copy: Path) -> None:
    text = copy.read_text().replace("// What is launched", "int no_such(int);\n// What is launched")
    copy.write_text(text.replace("    reduce_add3(dst, src, n);", "    dst[no_such(0)] = src[0];"))
    with pytest.raises(CompileError, match="no_such"):
        _build(copy)


def test_unchanged_file_is_not_built_again_and_a_changed_one_is(copy: Path) -> None:
    first = _build(copy)
    stamp = first.path.stat().st_mtime_ns
    assert _build(copy) == first
    assert first.path.stat().st_mtime_ns == stamp
    copy.write_text(copy.read_text() + "// changed\n")
    assert _build(copy).path != first.path
    assert _build(copy, checked=False).path != _build(copy).path


def test_header_beside_the_file_counts_as_content(copy: Path) -> None:
    header = copy.with_name("mine.cuh")
    header.write_text("#define MINE 1\n")
    copy.write_text('#include "mine.cuh"\n' + copy.read_text())
    first = _build(copy)
    header.write_text("#define MINE 2\n")
    assert _build(copy).path != first.path


def test_two_builds_at_once_agree(copy: Path, tmp_path: Path) -> None:
    copy.write_text(copy.read_text() + f"// {tmp_path}\n")
    program = (
        "import sys; from pathlib import Path; from kernels import build\n"
        "source = build.Source.read(Path(sys.argv[1]), sys.argv[2:])\n"
        "print(build.build_cpu(source, checked=True).path)"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(copy), *PROTOTYPES],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    told = [process.communicate(timeout=120)[0].strip() for process in both]
    assert told[0] == told[1] != ""
    assert Path(told[0]).is_file()


def test_killed_build_leaves_nothing_in_the_way(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.folder()
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "cache"))
    debris = tmp_path / "cache" / "building-dead"
    debris.mkdir(parents=True)
    (debris / "unit.o").write_bytes(b"half")
    an_hour_ago = time.time() - 3600
    os.utime(debris, (an_hour_ago, an_hour_ago))
    made = _build(copy)
    assert made.path.is_relative_to(tmp_path / "cache")
    assert not debris.exists()
    assert not list((tmp_path / "cache").glob("building-*"))


def test_builds_that_were_long_not_used_are_removed(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.folder()
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "cache"))
    used, old = _build(copy).path.parent, tmp_path / "cache" / "cpu-old"
    old.mkdir()
    for folder in (used, old):
        os.utime(folder, (0, 0))
    assert _build(copy).path.parent == used  # using it makes it young again
    copy.write_text(copy.read_text() + "// new\n")
    _build(copy)
    assert used.is_dir()
    assert not old.exists()


def test_failed_build_is_not_kept(copy: Path, tmp_path: Path) -> None:
    def refuse(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise CompileError("no")

    with pytest.raises(CompileError):
        cache.build_once(f"cpu-{tmp_path.name}", refuse)
    assert not (cache.cache_folder() / f"cpu-{tmp_path.name}").exists()


def test_cache_lies_where_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder() == tmp_path / "xdg" / "tinyparallel"
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "named"))
    assert cache.cache_folder() == tmp_path / "named"


def test_no_compiler_is_said_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (compilers.ENVIRONMENT, "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompiler, match="install g\\+\\+ or clang"):
        compilers.cxx()
    monkeypatch.setenv(compilers.ENVIRONMENT, "no-such-compiler")
    with pytest.raises(NoCompiler, match="no-such-compiler"):
        compilers.cxx()


def test_setup_without_a_compiler_goes_on(tmp_path: Path) -> None:
    environment = {**os.environ, "TINYPARALLEL_CXX": "no-such-compiler"}
    environment["TINYPARALLEL_CACHE"] = str(tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "kernels.setup"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0
    assert "kernel tasks will be skipped" in run.stderr


def test_a_kit_that_does_not_build_is_an_error_and_no_skipped_check(tmp_path: Path) -> None:
    compiler = tmp_path / "broken++"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && exec c++ --version\nexit 1\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "TINYPARALLEL_CXX": str(compiler), "PYTHONPATH": str(ROOT)}
    environment["TINYPARALLEL_CACHE"] = str(tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    out = tmp_path / "out.json"
    command = ["check", "a2.reduce_add", "--solution", "reference", "--no-throughput"]
    run = subprocess.run(
        [sys.executable, "-m", "grader", *command, "--json", str(out)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    (task,) = json.loads(out.read_text(encoding="utf-8"))["tasks"]
    assert task["status"] == "error" and task["points"] == 0
    assert "the native layer could not be built" in run.stdout


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU here")
def test_launcher_imports_without_a_driver_and_says_so() -> None:
    import kernels

    assert not kernels.cuda_available()
    assert "CUDA driver" in (kernels.cuda_problem() or "")


ARCHITECTURES = ("sm_80", "sm_90")
STRICT = ("-Werror", "all-warnings", "-Xptxas", "-v")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("assignment", FILES)
def test_kernels_build_for_gpus_without_warnings_or_spills(
    assignment: str, arch: str, tmp_path: Path
) -> None:
    try:
        nvcc = compilers.nvcc()
    except NoCompiler as problem:
        pytest.skip(str(problem))
    source = ROOT / "reference" / assignment / "kernels.cu"
    command = ["-std=c++17", "-O3", f"-arch={arch}", *STRICT, "-cubin"]
    told = nvcc.run([*command, "-o", str(tmp_path / "k.cubin"), str(source)], ROOT, seconds=180.0)
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", told)
    assert len(spills) == len(FILES[assignment])
    assert set(spills) == {("0", "0")}
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", told)]
    assert max(registers) <= 128  # 512 threads of 128 registers fill a multiprocessor


@pytest.mark.parametrize("assignment", FILES)
def test_kernels_of_every_file_keep_their_prototypes(assignment: str) -> None:
    file = KernelFile(ROOT / "reference" / assignment / "kernels.cu")
    made = build.build_cpu(file.source, checked=False)
    module = native.launcher().CpuModule(str(made.path), made.shared, made.device)
    kinds = {
        contract.name: "".join(parameter.kind for parameter in contract.parameters)
        for contract in FILES[assignment]
    }
    assert module.kernels() == kinds


def test_wrappers_refuse_what_a_kernel_cannot_take() -> None:
    kernels = Kernels(REFERENCE)
    x = torch.ones(4, 6)
    for dst, src, told in (
        (x, torch.ones(4, 5), "shape"),
        (x.t(), x.t(), "contiguous"),
        (x, x.double(), "float32"),
        (x.half(), x.half(), "float32 or bfloat16"),
        (x, x.to("meta"), "meta"),
    ):
        with pytest.raises(ArgumentError, match=told):
            kernels.reduce_add(dst, src)
