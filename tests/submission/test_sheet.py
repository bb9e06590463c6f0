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


@pytest.mark.parametrize("named", ["第一次作业", "第1次作业"])
def test_columns_are_named_by_chinese_numbers_or_digits(tmp_path: Path, named: str) -> None:
    text = "学号,第一次作业,第二次作业\n7,L1,L2\n"
    for own, link in ((named, "L1"), ("第2次作业", "L2")):
        (entry,) = read_sheet(sheet(tmp_path, text), Columns(link=own)).entries
        assert (entry.student, entry.link) == ("7", link)


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
    assert first.entries[0].time == datetime(2026, 4, 3, 9, tzinfo=UTC) and not first.notes[1:]
    second = read_sheet(sheet(tmp_path, text.format("4/13")))
    assert second.entries[0].time == datetime(2026, 3, 4, 9, tzinfo=UTC) and not second.notes[1:]
    neither = read_sheet(sheet(tmp_path, text.format("4/5")))
    assert neither.entries[0].time == datetime(2026, 3, 4, 9, tzinfo=UTC)
    assert "month first" in neither.notes[1]
    told = Columns(time_format="%d/%m/%Y %H:%M")
    entry = read_sheet(sheet(tmp_path, text.format("4/5")), told).entries[0]
    assert entry.time == datetime(2026, 4, 3, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("20 March 2026", (2026, 3, 20)),
        ("March 20, 2026", (2026, 3, 20)),
        ("20 Mar 2026 14:05", (2026, 3, 20, 14, 5)),
        ("Mar. 3rd 2026 2:05:06 PM", (2026, 3, 3, 14, 5, 6)),
        ("Friday, 20 March 2026, 2:05 PM", (2026, 3, 20, 14, 5)),
        ("Sept 1, 2026 at 11:59pm", (2026, 9, 1, 23, 59)),
        ("01-May-2026 08:00", (2026, 5, 1, 8)),
        ("20 Mar 2026 14:05 UTC+8", (2026, 3, 20, 6, 5)),
    ],
)
def test_months_by_their_names(tmp_path: Path, text: str, moment: tuple[int, ...]) -> None:
    found = read_sheet(sheet(tmp_path, f'student,link,time\nann,L1,"{text}"\n'))
    assert found.entries[0].problem == "" and len(found.notes) == 1
    assert found.entries[0].time == datetime(*moment, tzinfo=UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    "text", ["31 February 2026", "20 Marching 2026", "March 2026", "20 March", "20 March 26"]
)
def test_what_is_no_date_with_a_name_of_a_month(tmp_path: Path, text: str) -> None:
    (entry,) = read_sheet(sheet(tmp_path, f"student,link,time\nann,L1,{text}\n")).entries
    assert "its time cannot be read" in entry.problem


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
        ("student,link\n,L/1\n", "csv:2: nobody is named"),
        ("a,b,c\n1,2,3\n", "no column of links was found: there are 'a', 'b', 'c'"),
    ],
)
def test_a_sheet_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadSheet, match=words):
        read_sheet(sheet(tmp_path, text))


def people(text: str, folder: Path) -> list[str]:
    return [entry.student for entry in read_sheet(sheet(folder, text)).entries]


L = f"https://github.com/a/b/tree/{'a' * 40}"


@pytest.mark.parametrize(
    "text",
    [
        f'student,link\nann,"{L}\nbob,{L}\ncid,{L}\n',
        f'student,name,link\nx,X,{L}\nann,"Ann,{L}\nbob,B,{L}\ncid,C,{L}\n',
        f'student,link,note\nann,{L},"late because\nbob,{L},"fine"\ncid,{L},\n',
        f'student,link,note\nann,{L},"late because\nbob,{L},fine"\ncid,{L},\n',
    ],
)
def test_a_quote_that_never_closes_loses_nobody(tmp_path: Path, text: str) -> None:
    line = 3 if ",name," in text else 2
    with pytest.raises(BadSheet, match=f"csv:{line}: a quotation mark opens a cell here"):
        read_sheet(sheet(tmp_path, text))
    assert people(text.replace(",", "\t"), tmp_path)[-3:] == ["ann", "bob", "cid"]


def test_a_note_of_several_lines_is_one_cell(tmp_path: Path) -> None:
    text = f'student,link,note\nann,{L},"one, two\nthree, four/five, ""six"""\nbob,{L},\n'
    assert people(text, tmp_path) == ["ann", "bob"]
    assert people(text.replace(",", "\t"), tmp_path) == ["ann", "bob"]
    note = read_sheet(sheet(tmp_path, text)).notes[1]
    assert "line 2: a cell goes on for 2 lines" in note


# Heads; in brackets those of the student, the link and the time.
@pytest.mark.parametrize(
    "marked",
    [
        "ID,Start time,{Completion time},<Email>,Name,[Link]",
        "编号,开始答题时间,{提交时间},<学号>,[链接]",
        "编号,开始答题时间,{结束答题时间},<学号>,[链接]",
        "序号,{提交答卷时间},所用时间,来源,<1、学号>,2、姓名,[3、提交链接]",
        "<Student ID>,Birth date,[Link],{Submitted}",
        "<学号>,出生日期,[链接],{时间}",
        "<学号>,出生日期,[链接]",
        "Student,ID,<SIS User ID>,SIS Login ID,Section,[Submission]",
        "<学号/Student ID>,{提交时间/Time},[链接/Link],备注/Remarks",
        "<student/学号>,[link/链接]",
        "<学号>,姓名,创建时间,{最后提交时间},[仓库地址]",
        "<ID>,[Link]",
        "assignment_url,<roster_identifier>,github_username,student_repository_name,"
        "[student_repository_url],{submission_timestamp}",
        "<Student>,{Submitted at},[Commit URL],Comment URL",
        "Full name,<Email address>,Status,{Last modified (submission)},[Online text]",
    ],
)
def test_the_right_columns_are_taken(tmp_path: Path, marked: str) -> None:
    marks = marked.split(",")
    lines = [",".join(mark.strip("<>[]{}") for mark in marks)]
    for number, who in enumerate(["ann", "5", "7"], 1):
        own = {"<": who, "[": L, "{": "2026-03-01"}
        cells = [own.get(mark[0], str(number) if mark == "ID" else "2001-01-01") for mark in marks]
        lines.append(",".join(cells))
    found = read_sheet(sheet(tmp_path, "\n".join(lines)))
    assert [(e.student, e.link) for e in found.entries] == [("ann", L), ("5", L), ("7", L)]
    moments = {entry.time for entry in found.entries}
    assert moments == {datetime(2026, 3, 1, tzinfo=UTC) if "{" in marked else None}
    said = "\n".join(found.notes)
    for mark, kind in (("<", "student"), ("[", "link"), ("{", "time")):
        (head,) = [m.strip("<>[]{}") for m in marks if m[0] == mark] or [""]
        assert f"{kind} {head!r}" in said if head else f"{kind} —" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("学号,Student number,link\n1,2,L\n", "equally good for the student: .*--student-column"),
        (f"学号,link,url\n1,{L},{L}\n", "'link', 'url' are equally good.*--link-column"),
        ("学号,link,time,date\n1,L,,\n", "'time', 'date' are equally good.*--time-column"),
    ],
)
def test_two_columns_equally_good_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadSheet, match=words):
        read_sheet(sheet(tmp_path, text))


def test_a_number_of_the_row_is_no_student(tmp_path: Path) -> None:
    with pytest.raises(BadSheet, match=r"no column says who.*--student-column"):
        read_sheet(sheet(tmp_path, f"ID,Link\n1,{L}\n2,{L}\n"))
    assert people(f"ID,Who,Link\n1,ann,{L}\n2,bob,{L}\n", tmp_path) == ["ann", "bob"]


def test_a_person_is_one_however_the_letters_are_coded(tmp_path: Path) -> None:
    text = f"student,link\n2026,{L}\n２０２６,{L}\né,{L}\ne\u0301,{L}\nANN ,{L}\nAnn,{L}\n"
    found = read_sheet(sheet(tmp_path, text))
    assert [e.student for e in found.entries] == ["2026", "2026", "é", "é", "ANN", "Ann"]
    assert "'ANN' and 'Ann' differ only in case" in found.notes[-1]


def test_what_a_terminal_obeys_is_left_out(tmp_path: Path) -> None:
    text = f"student,name,link\na\x1b[2Jnn,A\u202en\x9b1m\x07n,{L}\n"
    (entry,) = read_sheet(sheet(tmp_path, text)).entries
    assert (entry.student, entry.name) == ("a[2Jnn", "An1mn")


def test_rows_that_name_nobody_are_listed(tmp_path: Path) -> None:
    found = read_sheet(sheet(tmp_path, f"student,name,link\nann,A,{L}\n,Total: 1,\nbob\n"))
    assert [(e.student, e.problem[:8]) for e in found.entries] == [
        ("ann", ""), ("", "nobody i"), ("bob", "expected"),
    ]  # fmt: skip


def test_a_first_row_without_a_good_link_is_no_head(tmp_path: Path) -> None:
    assert people(f"ann,done\nbob,{L}\n", tmp_path) == ["ann", "bob"]
    assert people(f"ann,done\nbob,my repository\ncid,{L}\n", tmp_path) == ["ann", "bob", "cid"]


@pytest.mark.parametrize("above", ["sep=;\n", "第一次作业提交;;\n", "Homework 1\n\n", "A;;\nB;;\n"])
def test_what_stands_above_the_head_is_skipped(tmp_path: Path, above: str) -> None:
    text = f"{above}student;name;link\nann;Ann, A.;{L}\n"
    (entry,) = read_sheet(sheet(tmp_path, text)).entries
    assert (entry.student, entry.name, entry.link) == ("ann", "Ann, A.", L)
    assert entry.line == 2 + above.count("\n")
