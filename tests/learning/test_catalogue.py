"""The Chinese catalogue: complete for what the grader says to students, and used."""

from __future__ import annotations

import gettext
import io
import json
import os
import re
import shutil
import string
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from grader import tasks
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed
from grader.report import catalogue
from grader.report.language import WORDS, language_of, text, translated

from . import messages
from .answers import ROOT

FIELD = re.compile(r"\{(\w*)[^}]*\}")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
ENTRIES = catalogue.entries(catalogue.PO_FILE.read_text(encoding="utf-8"))
#: Said alike in both languages.
SAME = {
    "DualPipe", "dissemination", "busbw, GB/s", ": ", " ({words})", ", ", "; ", "commit",
    "a1.broadcast", "links[{0}, {1}]",
}  # fmt: skip

COLLECT = """
import json
from grader import tasks
from grader.checks.run import run_checks
options = ["--solution=reference", "--device=cpu", "--no-throughput"]
results = run_checks(tasks.TASKS, options, ["--collect-only"])
print(json.dumps(sorted({c.check for t in results.tasks for c in t.checks})))
"""


def missing(found: dict[str, str]) -> str:
    """What the catalogue lacks, one line each, ready to be looked up."""
    return "\n".join(
        f"{where}: {message}"
        for message, where in found.items()
        if message not in ENTRIES and message not in SAME
    )


def test_tables_and_commands_are_complete() -> None:
    assert missing(dict.fromkeys(WORDS.values(), "grader/report/language.py")) == ""
    for key, words in WORDS.items():
        fields = {name for _, name, _, _ in string.Formatter().parse(words) if name}
        chinese = {name for _, name, _, _ in string.Formatter().parse(ENTRIES[words]) if name}
        assert fields == chinese, key


def test_titles_are_complete() -> None:
    found = {each.title: each.name for each in tasks.COURSE}
    found |= {task.title: task.id for each in tasks.COURSE for task in each.tasks}
    assert missing(found) == ""


def test_names_of_checks_are_complete() -> None:
    run = subprocess.run(
        [sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    names = json.loads(run.stdout.splitlines()[-1])
    assert len(names) > 200
    assert missing(dict.fromkeys(names, "a check's name")) == ""


def test_likely_causes_are_complete() -> None:
    found = messages.all_causes()
    assert len(found) > 400 and "a loop that never ends" in found
    assert missing({m: w for m, w in found.items() if not m.startswith("Legend:")}) == ""


def test_the_collector_sees_causes_wherever_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "causes_x.py"
    file.write_text(
        'A_CAUSE = "stands at the top"\n'
        "def f(x):\n"
        '    raise CheckFailed(f"rank {x} is wrong", cause="here" if x else f"or {x} there")\n'
        "def cause_of(x):\n"
        '    return x or "returned from here"\n'
    )
    assert set(messages.causes(file)) == {
        "stands at the top", "or {0} there", "returned from here",
    }  # fmt: skip
    assert set(messages.failures(file)) == {"rank {0} is wrong"}


def test_entries_are_sound() -> None:
    assert len(ENTRIES) > 900
    for message, words in ENTRIES.items():
        if not message:
            continue
        assert words and (CHINESE.search(words) or message in SAME or "`" in words), message
        assert set(FIELD.findall(message)) == set(FIELD.findall(words)), message


def test_the_commonest_failures_are_in_it() -> None:
    known = [message for message in messages.all_failures() if message in ENTRIES]
    assert len(known) > 80


def test_it_is_a_gettext_catalogue(tmp_path: Path) -> None:
    ours = gettext.GNUTranslations(io.BytesIO(catalogue.compiled(ENTRIES)))
    assert ours.gettext("passed") == "通过"
    if shutil.which("msgfmt") is None:
        return
    target = tmp_path / "out.mo"
    subprocess.run(["msgfmt", "-o", str(target), str(catalogue.PO_FILE)], check=True)
    with target.open("rb") as file:
        theirs = gettext.GNUTranslations(file)
    assert all(theirs.gettext(message) == ours.gettext(message) for message in ENTRIES if message)


def test_a_damaged_catalogue_names_the_line() -> None:
    with pytest.raises(ValueError, match=r"tinyparallel\.po:2"):
        catalogue.entries('msgid "a"\nb\n')


def failure(*ranks: list[float]) -> str:
    with pytest.raises(CheckFailed) as caught:
        got, wanted = torch.tensor(ranks[0]), torch.tensor(ranks[1], dtype=torch.float64)
        assert_close(got, wanted, dtype=torch.float32, operations=1, where="rank 1")
    return caught.value.message


def test_messages_with_numbers_are_translated_by_their_form() -> None:
    for message, expected in (
        (failure([1.0, 2.0], [1.0, 3.0]), "应为"),
        ("4 ranks, SUM, float32 (8,): 12 ranks took 7 rounds, expected at most 4", "用了 7 轮"),
        ("fewer bytes than the result needs: the data did not travel in messages", "没有通过消息"),
        ("deadlock: rank 0 → rank 1 → rank 0 wait for each other.\n  rank 0 has returned",
         "  rank 0 已经返回"),
        ("rank 2 sent 5 messages, expected at most 3", "rank 2 发了 5 条消息，最多应为 3 条"),
    ):  # fmt: skip
        assert expected in translated("zh", message), translated("zh", message)
        assert translated("en", message) == message
    assert translated("zh", "something that nobody knows") == "something that nobody knows"
    assert translated("zh", "") == ""


WHOLE = {
    each["en"]: each["zh"]
    for each in tomllib.loads(
        Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8")
    )["sentence"]
}


@pytest.mark.parametrize(
    "message", ["rank 0 gives NIC7, which is SYS from GPU0, expected one that is PXB"]
)
def test_half_a_sentence_is_not_translated(message: str) -> None:
    assert translated("zh", message) == message
    assert translated("zh", "x is 3, expected 4") == "x 是 3，应为 4"


@pytest.mark.parametrize("message", WHOLE)
def test_a_sentence_is_translated_whole_and_code_in_it_not_at_all(message: str) -> None:
    assert translated("zh", message) == WHOLE[message]


def test_faults_of_the_simulated_cluster_are_translated() -> None:
    from grader.fabric.record import Location, Operation
    from grader.fabric.words import message_mismatch

    def operation(rank: int, kind: str, peer: int, numel: int) -> Operation:
        return Operation(
            0, rank, kind, 0, peer, 4 * numel, (numel,), "float32", "cpu",
            location=Location("/x/f.py", 3, "f"),
        )  # fmt: skip

    finding = message_mismatch(operation(0, "send", 1, 4), operation(1, "recv", 0, 8))
    words = translated("zh", finding.message)
    assert (
        words.startswith("发送方和接收方不一致：发送 16 B，期望 32 B。\n") and "sends" not in words
    )


def test_every_form_translates_what_it_was_made_for() -> None:
    for message in ENTRIES:
        if "{0}" not in message:
            continue
        filled = re.sub(r"\{(\d)\}", r"10\1", message)
        came = catalogue.translate(filled)
        assert CHINESE.search(came), message
        numbers = {f"10{name}" for name in FIELD.findall(message)}
        assert all(number in came for number in numbers), (message, came)


@pytest.mark.parametrize(
    ("environment", "option", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, None, "zh"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_CN.UTF-8"}, None, "zh"),
        ({"LANG": "zh_CN.UTF-8"}, "en", "en"),
        ({"LANG": "C"}, "zh", "zh"),
        ({"LANG": "de_DE.UTF-8"}, None, "en"),
        ({}, None, "en"),
    ],
)
def test_the_language_is_the_one_asked_for_or_the_locales(
    environment: dict[str, str], option: str | None, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert language_of(option) == language


def test_the_command_line_speaks_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from grader.cli import main

    (tmp_path / "assignments").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["hint", "a1.boardcast", "--lang", "zh"]) == 2
    assert "你是指 a1.broadcast" in capsys.readouterr().err
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert main(["status"]) == 0
    out = capsys.readouterr().out
    assert "尚未运行" in out and "下一步：a0.pcie_bandwidth" in out and "PCIe 链路的 bytes/s" in out
    assert main(["status", "--lang", "en"]) == 0
    assert "not run yet" in capsys.readouterr().out


def test_words_are_english_without_a_translation() -> None:
    assert text("en", "passed") == "passed" and text("zh", "passed") == "通过"


def test_no_message_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a student's exception says may be made to fit the forms almost, in very many ways."""
    tried = 0

    def count(form: object, message: str) -> None:
        nonlocal tried
        tried += 1

    most = 4 * len(catalogue._forms()) * catalogue._ATTEMPTS
    for form in sorted(catalogue._forms(), key=lambda form: -len(form.names))[:5]:
        pieces = [re.sub(r"\(\?P<.*?\)|\\Z|\\", "", piece.pattern) for piece in form.pieces]
        almost = pieces[0] + "x" + "".join(f"{piece}x" for piece in pieces[1:-1]) * 30 + "!"
        assert catalogue.translate(almost) == almost
    monkeypatch.setattr(catalogue._Form, "fields", count)
    for hostile in ("a: " * 400, "a b c; " * 200, "(x: " * 300, "it is: so (a: b) " * 80):
        tried = 0
        assert catalogue.translate(hostile) == hostile
        assert tried <= most
