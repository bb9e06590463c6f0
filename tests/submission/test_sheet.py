"""Links as people paste them, and sheets as forms and spreadsheets export them."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.submission.sheet import (
    BadLink,
    BadSheet,
    Link,
    latest_valid,
    parse_link,
    read_sheet,
)

SHA = "0123456789abcdef0123456789abcdef01234567"
URL = "https://github.com/ann/homework.git"


@pytest.mark.parametrize(
    "text",
    [
        f"https://github.com/ann/homework/tree/{SHA}",
        f"  https://github.com/ann/homework/tree/{SHA}/ \r",
        f"http://www.GitHub.com/ann/homework/commit/{SHA.upper()}",
        f"https://github.com/ann/homework.git/commits/{SHA}",
        f"https://github.com/ann/homework/tree/{SHA}?tab=readme-ov-file#a2",
        f"https://github.com/ann/homework/blob/{SHA}/assignments/a1.py",
        f"<https://github.com/ann/homework/tree/{SHA}>",
    ],
)
def test_what_people_paste_names_the_commit(text: str) -> None:
    assert parse_link(text) == Link(URL, SHA)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://github.com/ann/homework", "expected https://github.com/USER/REPOSITORY/tree/"),
        ("https://github.com/ann/homework/tree/main", "40 hexadecimal digits"),
        ("https://github.com/ann/homework/tree/0123abc", "40 hexadecimal digits"),
        (f"https://example.org/ann/homework/tree/{SHA}", "expected https://github.com/"),
        (f"https://github.com.evil.org/ann/homework/tree/{SHA}", "expected https://github.com/"),
        (f"https://github.com/../homework/tree/{SHA}", "'..' is no name of a user"),
        (f"https://github.com/--upload-pack=x/homework/tree/{SHA}", "is no name of a user"),
        (f"--upload-pack=touch x https://github.com/a/b/tree/{SHA}", "expected https://"),
        (f"/home/ann/homework/tree/{SHA}", "expected https://github.com/"),
        ("", "expected https://github.com/"),
    ],
)
def test_other_links_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadLink, match=words.replace(".", r"\.")):
        parse_link(text)


def test_local_repositories_only_when_told() -> None:
    assert parse_link(f"/srv/ann/tree/{SHA}", allow_local=True) == Link("/srv/ann", SHA)
    assert parse_link(f"file:///srv/ann/commit/{SHA}", allow_local=True) == Link("/srv/ann", SHA)


def sheet(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "sheet.csv"
    path.write_bytes(text.encode(encoding))
    return path


def rows(folder: Path, text: str, encoding: str = "utf-8") -> list[tuple[str, str, int]]:
    return [(e.student, e.link, e.line) for e in read_sheet(sheet(folder, text, encoding))]


def test_columns_are_found_by_their_header(tmp_path: Path) -> None:
    text = "Timestamp,Student ID,Repository link,Comment\r\n1.1.,7,L1,\r\n2.1.,8,L2,hi\r\n"
    assert rows(tmp_path, text) == [("7", "L1", 2), ("8", "L2", 3)]
    chinese = "学号\t提交链接\n7\tL1\n"
    assert rows(tmp_path, chinese, "utf-8-sig") == [("7", "L1", 2)]


def test_a_sheet_without_a_header(tmp_path: Path) -> None:
    assert rows(tmp_path, "ann;L/1\n\nbob;L/2\n") == [("ann", "L/1", 1), ("bob", "L/2", 3)]
    with_quotes = f'"Ann, A.","https://github.com/ann/homework/tree/{SHA}"\n'
    assert rows(tmp_path, with_quotes)[0][0] == "Ann, A."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("student,link\nann\n", "csv:2: expected a student and a link"),
        ("student,link\n,L/1\n", "csv:2: nobody is named"),
    ],
)
def test_a_sheet_that_makes_no_sense_names_the_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadSheet, match=words):
        read_sheet(sheet(tmp_path, text))
    with pytest.raises(BadSheet, match="is not UTF-8 text"):
        read_sheet(sheet(tmp_path, "学号,link", "utf-16"))


def test_the_latest_valid_link_counts(tmp_path: Path) -> None:
    link = f"https://github.com/ann/{{}}/tree/{SHA}"
    text = f"ann,{link.format('one')}\nann,{link.format('two')}\nann,oops/\nbob,a/\nbob,b/\n"
    found = latest_valid(read_sheet(sheet(tmp_path, text)))
    assert found["ann"][1] == Link("https://github.com/ann/two.git", SHA)
    assert isinstance(found["bob"][1], BadLink) and "b/" in str(found["bob"][1])
