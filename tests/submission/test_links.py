"""Links as people paste them: what each leads to, and why others lead nowhere."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.submission.links import BadLink, Link, Rules, parse_link

SHA = "0123456789abcdef0123456789abcdef01234567"
URL = "https://github.com/ann/homework.git"
TREE = f"https://github.com/ann/homework/tree/{SHA}"


@pytest.mark.parametrize(
    "text",
    [
        TREE,
        f"  {TREE}/ \r",
        f"\ufeff{TREE}\r\n",
        f"http://www.GitHub.com/ann/homework/commit/{SHA.upper()}",
        f"https://github.com/ann/homework.git/commits/{SHA}",
        f"{TREE}?tab=readme-ov-file#a2",
        f"{TREE}%20",
        f"{TREE}%20%0A",
        f"{TREE}&ref=1",
        f"{TREE}(final)",
        f"https://github.com/ann/homework/commit/{SHA}.patch",
        f"https://github.com/ann/homework/commit/{SHA}.diff",
        f"https://github.com/ann/homework/blob/{SHA}/assignments/a1.py#L10-L20",
        f"https://github.com/ann/homework/pull/7/commits/{SHA}",
        f"https://github.com/ann/homework/pull/7/changes/{SHA}",
        f"https://github.com/ann/homework/{SHA}",
        f"<{TREE}>",
        f'"{TREE}"',
        f"（{TREE}）",
        f"（ {TREE} ）",
        f"【{TREE}】。",
        f"我的提交：{TREE}，谢谢老师",
        f"My link: {TREE}.",
        f"[homework]({TREE})",
        f"{TREE} {TREE}/",
        f"github.com/ann/homework/tree/{SHA}",
        f"https：//github.com/ann/homework/tree/{SHA}",
        f"https://github.com/ann/homework/tree/{SHA}\u200b",
        f"https://ann:token@github.com/ann/homework/tree/{SHA}",
        f"https://github.com:443/ann/homework/tree/{SHA}",
        f"git@github.com:ann/homework.git/tree/{SHA}",
        f"git@github.com:ann/homework.git {SHA}",
        f"ssh://git@github.com/ann/homework.git@{SHA}",
        f"ssh://git@ssh.github.com:443/ann/homework.git/tree/{SHA}",
        f"ssh://git@ssh.github.com:443/ann/homework.git {SHA}",
        f"git@ssh.github.com:ann/homework.git@{SHA}",
        f"https://github.com/ann/homework.git@{SHA}",
        f"https://github.com/ann/homework {SHA}",
    ],
)
def test_what_people_paste_names_the_commit(text: str) -> None:
    assert parse_link(text) == Link(URL, SHA)


@pytest.mark.parametrize(
    ("alias", "host"),
    [("altssh.gitlab.com", "gitlab.com"), ("altssh.bitbucket.org", "bitbucket.org")],
)
def test_hosts_that_answer_ssh_on_the_port_of_https(alias: str, host: str) -> None:
    text = f"ssh://git@{alias}:443/ann/homework.git {SHA}"
    assert parse_link(text, Rules((host,))) == Link(f"https://{host}/ann/homework.git", SHA)
    assert parse_link(text, Rules((alias,))).url == f"https://{alias}/ann/homework.git"
    with pytest.raises(BadLink, match=f"{host!r} is none of the hosts of this course"):
        parse_link(text)


def test_short_shas_keep_their_length() -> None:
    assert parse_link("https://github.com/ann/homework/commit/0123ABC") == Link(
        URL, "0123abc", "short"
    )
    assert (
        parse_link(f"https://github.com/ann/homework/tree/{SHA[:12]}/assignments").ref == (SHA[:12])
    )


@pytest.mark.parametrize(
    "name", ["main", "v1.0", "feature/ring", "012345", "作业一", "a#b%", "f(1)"]
)
def test_branches_and_tags_are_not_pinned(name: str) -> None:
    from urllib.parse import quote

    link = parse_link(f"https://github.com/ann/homework/tree/{quote(name)}")
    assert (link.ref, link.kind, link.pinned) == (name, "ref", False)


@pytest.mark.parametrize(
    ("behind", "name"),
    [
        ("feature(1)", "feature(1)"),
        ("feature(1))", "feature(1)"),
        ("refs/heads/main", "main"),
        ("refs/tags/v1", "v1"),
    ],
)
def test_branches_as_they_are_written(behind: str, name: str) -> None:
    for text in (
        f"https://github.com/ann/homework/tree/{behind}",
        f"github.com/ann/x/tree/{behind}",
    ):
        assert (parse_link(text).ref, parse_link(text).kind) == (name, "ref")


def test_hosts_and_mirrors_come_from_the_course() -> None:
    rules = Rules(("gitlab.example.org", "gitee.com"), {"gitee.com": "https://mirror/gitee/"})
    nested = f"https://gitlab.example.org/group/sub/homework/-/tree/{SHA}"
    assert parse_link(nested, rules).url == "https://gitlab.example.org/group/sub/homework.git"
    commit = f"https://gitlab.example.org/group/homework/-/commit/{SHA}"
    assert parse_link(commit, rules).url == "https://gitlab.example.org/group/homework.git"
    mirrored = parse_link(f"https://gitee.com/ann/homework/tree/{SHA}", rules)
    assert mirrored.url == "https://mirror/gitee/ann/homework.git"
    with pytest.raises(BadLink, match="none of the hosts of this course"):
        parse_link(TREE, rules)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected https://github.com/USER/REPOSITORY/tree/"),
        ("done", "expected https://github.com/USER/REPOSITORY/tree/"),
        ("https://github.com/ann", "names no repository"),
        ("https://github.com/ann/homework", "names no commit"),
        ("https://github.com/ann/homework.git", "names no commit"),
        ("git@github.com:ann/homework.git", "names no commit"),
        ("https://github.com/ann/homework/pull/7", "names a pull request, not one of its commits"),
        (f"{TREE} https://github.com/bob/homework/tree/{SHA}", "expected one link, got 2"),
        (f"https://example.org/ann/homework/tree/{SHA}", "'example.org' is none of the hosts"),
        (f"https://github.com.evil.org/ann/homework/tree/{SHA}", "is none of the hosts"),
        (f"https://github.com@evil.org/ann/homework/tree/{SHA}", "'evil.org' is none of the hosts"),
        (f"https://github.com:8443/ann/homework/tree/{SHA}", "is none of the hosts"),
        (f"https://github.com/../homework/tree/{SHA}", "'..' is no name of a user"),
        (f"https://github.com/%2e%2e/homework/tree/{SHA}", "'..' is no name of a user"),
        (f"https://github.com/a%2Fb/homework/tree/{SHA}", "'a/b' is no name of a user"),
        (f"https://github.com/--upload-pack=x/homework/tree/{SHA}", "is no name of a user"),
        (f"--upload-pack=touch https://evil.org/a/b/tree/{SHA}", "is none of the hosts"),
        ("https://github.com/ann/homework/tree/--upload-pack=x", "is no name of a commit, branch"),
        ("https://github.com/ann/homework/tree/a..b", "is no name of a commit, branch"),
        (f"{TREE}^", "is no name of a commit"),
        (f"{TREE}%5E", "is no name of a commit"),
        (f"{TREE}~", "is no name of a commit"),
        (f"{TREE}~1", "is no name of a commit"),
        (f"https://github.com/ann/homework/tree/{SHA}0", "40 hexadecimal digits, got 41"),
        (f"/home/ann/homework/tree/{SHA}", "expected https://github.com/"),
        (f"file:///home/ann/homework/tree/{SHA}", "expected https://github.com/"),
        (f"ext::sh -c x% github.com/ann/homework {SHA}", "names no|expected"),
        ("https://[::1/ann/homework/tree/x", "expected https://|Invalid"),
    ],
)
def test_other_links_are_refused_with_the_reason(text: str, words: str) -> None:
    if text.startswith("ext::"):
        # The address in it is a sound one; what stands before it is never handed to git.
        assert parse_link(text).url == URL
        return
    with pytest.raises(BadLink, match=words):
        parse_link(text)


def test_local_repositories_only_when_told() -> None:
    local = Rules(local=True)
    assert parse_link(f"/srv/ann/tree/{SHA}", local) == Link("/srv/ann", SHA)
    assert parse_link(f"file:///srv/ann/commit/{SHA[:9]}", local).kind == "short"
    assert parse_link(TREE, local) == Link(URL, SHA)


NAMES = st.text(string.ascii_letters + string.digits + "-_.", min_size=1, max_size=20).filter(
    lambda name: name[0] not in "-." and name.strip(".") and not name.lower().endswith(".git")
)
SHAS = st.text("0123456789abcdefABCDEF", min_size=7, max_size=40)
BEFORE = st.sampled_from(["", " ", "（", "link: ", "提交：", "<", "\ufeff", "\t"])
AFTER = st.sampled_from(
    ["", " ", "）", "。", "/", "/ ", ".", "?x=1", "#top", "\r\n", ">", "，谢谢"]
)
VIEWS = st.sampled_from(["tree", "commit", "commits", "blob", "pull/3/commits"])


@given(NAMES, NAMES, SHAS, VIEWS, BEFORE, AFTER)
def test_whatever_stands_around_a_link_it_names_its_commit(
    user: str, repository: str, sha: str, view: str, before: str, after: str
) -> None:
    link = parse_link(f"{before}https://github.com/{user}/{repository}/{view}/{sha}{after}")
    assert link.url == f"https://github.com/{user}/{repository}.git"
    assert link.ref == sha.lower()
    assert link.kind == ("sha" if len(sha) == 40 else "short")


@given(st.text(max_size=200))
def test_no_text_makes_it_fail_or_gives_git_an_option(text: str) -> None:
    for given_text in (text, f"https://github.com/{text}", f"https://github.com/a/b/tree/{text}"):
        try:
            link = parse_link(given_text)
        except BadLink:
            continue
        assert link.url.startswith("https://github.com/")
        assert link.url.endswith(".git") and not link.ref.startswith("-")
        assert not set(link.url + link.ref) & set("\n\r\0 ")
