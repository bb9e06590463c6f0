"""Sheets as forms and spreadsheets export them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from grader.submission.course import Columns
from grader.submission.sheet import BadSheet, read_sheet

BEIJING = timezone(timedelta(hours=8))


def sheet(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "sheet.csv"
    path.write_bytes(text.encode(encoding))
    return path


def rows(folder: Path, text: str, encoding: str = "utf-8") -> list[tuple[str, str, int]]:
    found = read_sheet(sheet(folder, text, encoding))
    return [(e.student, e.link, e.line) for e in found.entries]


def test_columns_are_found_by_their_header(tmp_path: Path) -> None:
    text = "Timestamp,Student ID,Name,Repository link,Comment\r\n2026-01-01 8:00,7,Ann,L1,\r\n"
    (entry,) = read_sheet(sheet(tmp_path, text)).entries
    assert (entry.student, entry.name, entry.link, entry.line) == ("7", "Ann", "L1", 2)
    assert entry.time == datetime(2026, 1, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk", "gb18030", "utf-16"])
def test_chinese_heads_in_the_encodings_that_spreadsheets_write(
    tmp_path: Path, encoding: str
) -> None:
    text = "提交时间\t学号\t姓名\t作业链接\n2026/3/4 下午 2:05\t007\t张三\tL1\n"
    found = read_sheet(sheet(tmp_path, text, encoding), zone=BEIJING)
    (entry,) = found.entries
    assert (entry.student, entry.name, entry.link) == ("007", "张三", "L1")
    assert entry.time == datetime(2026, 3, 4, 14, 5, tzinfo=BEIJING)
    assert any("GBK" in note for note in found.notes) == encoding.startswith("gb")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    path.write_bytes(b"PK\x03\x04\xff\xff\x00\x00")
    with pytest.raises(BadSheet, match="save it as CSV first"):
        read_sheet(path)


def test_columns_are_mapped_by_their_names(tmp_path: Path) -> None:
    text = "A,B,C,link\nx,ann,L1,no\n"
    found = read_sheet(sheet(tmp_path, text), Columns(student="b", link="C"))
    assert [(e.student, e.link) for e in found.entries] == [("ann", "L1")]
    with pytest.raises(BadSheet, match="no column is named 'D': there are 'A', 'B', 'C', 'link'"):
        read_sheet(sheet(tmp_path, text), Columns(link="D"))


def test_the_head_of_a_column_names_its_time_zone(tmp_path: Path) -> None:
    for head, zone in (
        ("提交时间（北京时间）", BEIJING),
        ("Timestamp (UTC-5)", timezone(-timedelta(hours=5))),
    ):
        text = f"student,link,{head}\nann,L1,2026-03-04 23:30:05\n"
        (entry,) = read_sheet(sheet(tmp_path, text), zone=UTC).entries
        assert entry.time == datetime(2026, 3, 4, 23, 30, 5, tzinfo=zone)


def test_day_and_month_are_told_apart_by_the_whole_column(tmp_path: Path) -> None:
    text = "student,link,time\nann,L1,3/4/2026 9:00\nbob,L2,{}/2026 9:00\n"
    first = read_sheet(sheet(tmp_path, text.format("13/4")))
    assert first.entries[0].time == datetime(2026, 4, 3, 9, tzinfo=UTC) and not first.notes
    second = read_sheet(sheet(tmp_path, text.format("4/13")))
    assert second.entries[0].time == datetime(2026, 3, 4, 9, tzinfo=UTC) and not second.notes
    neither = read_sheet(sheet(tmp_path, text.format("4/5")))
    assert neither.entries[0].time == datetime(2026, 3, 4, 9, tzinfo=UTC)
    assert "month first" in neither.notes[0]
    told = Columns(time_format="%d/%m/%Y %H:%M")
    entry = read_sheet(sheet(tmp_path, text.format("4/5")), told).entries[0]
    assert entry.time == datetime(2026, 4, 3, 9, tzinfo=UTC)


def test_a_time_that_cannot_be_read_spoils_its_row_only(tmp_path: Path) -> None:
    text = "student,link,time\nann,L1,yesterday\nbob,L2,2026-02-30 1:00\ncat,L3,2026-03-01 1:00\n"
    ann, bob, cat = read_sheet(sheet(tmp_path, text)).entries
    assert "got 'yesterday'" in ann.problem and "2026-02-30" in bob.problem and not cat.problem


def test_a_sheet_without_a_header(tmp_path: Path) -> None:
    assert rows(tmp_path, "ann;L/1\n\nbob;L/2\n") == [("ann", "L/1", 1), ("bob", "L/2", 3)]
    with_quotes = '"Ann, A.","https://github.com/ann/homework/tree/0123abc"\n'
    assert rows(tmp_path, with_quotes)[0][0] == "Ann, A."


def test_a_cell_may_span_lines(tmp_path: Path) -> None:
    text = 'student,link\nann,"https://github.com/a/b\n/tree/0123abc"\nbob,L2\n'
    found = rows(tmp_path, text)
    assert [(student, line) for student, _, line in found] == [("ann", 2), ("bob", 4)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("student,link\nann\n", "csv:2: expected a student and a link"),
        ("student,link\n,L/1\n", "csv:2: nobody is named"),
        ("a,b,c\n1,2,3\n", "no column of links was found: there are 'a', 'b', 'c'"),
    ],
)
def test_a_sheet_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadSheet, match=words):
        read_sheet(sheet(tmp_path, text))
