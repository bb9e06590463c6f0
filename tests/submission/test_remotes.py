"""Remotes as students have them: no secret of one is shown, and its link leads somewhere."""

from __future__ import annotations

import pytest

from grader.submission.remotes import NoLink, link_to, problem_of, shown

SHA = "0" * 40


@pytest.mark.parametrize(
    ("url", "start"),
    [
        ("https://github.com/ann/homework.git", "https://github.com/ann/homework"),
        ("https://github.com/ann/homework/", "https://github.com/ann/homework"),
        ("https://www.github.com/ann/homework", "https://github.com/ann/homework"),
        ("git@github.com:ann/homework.git", "https://github.com/ann/homework"),
        ("git@gitee.com:ann/homework", "https://gitee.com/ann/homework"),
        ("ssh://git@git.example.org:2222/ann/homework.git", "https://git.example.org/ann/homework"),
        ("https://git.example.org:8443/ann/hw.git", "https://git.example.org:8443/ann/hw"),
        ("ssh://git@ssh.github.com:443/ann/hw.git", "https://github.com/ann/hw"),
        ("git@gitlab.com:group/part/hw.git", "https://gitlab.com/group/part/hw/-"),
        ("https://ann:SECRET@github.com/ann/hw", "https://github.com/ann/hw"),
        ("HTTPS://ann:SECRET@github.com/ann/hw.git", "https://github.com/ann/hw"),
        ("https://ann:p@SECRET@github.com/ann/hw.git", "https://github.com/ann/hw"),
        ("https://ann:p/SECRET@github.com/ann/hw.git", "https://github.com/ann/hw"),
        ("https://SECRET@github.com/ann/hw.git", "https://github.com/ann/hw"),
        ("https://github.com/ann/hw.git?private_token=SECRET", "https://github.com/ann/hw"),
        ("https://github.com/ann/hw.git#SECRET", "https://github.com/ann/hw"),
        ("ann:SECRET@github.com:ann/hw.git", "https://github.com/ann/hw"),
    ],
)
def test_every_form_of_a_remote_makes_a_link(url: str, start: str) -> None:
    assert link_to(url, SHA) == f"{start}/tree/{SHA}"
    assert "SECRET" not in shown(url)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("/srv/x.git", "on no host"),
        ("../x", "on no host"),
        ("file:///srv/x", "on no host"),
        (".", "on no host"),
        ("C:\\Users\\ann\\hw", "on no host"),
        ("C:/Users/ann/hw", "on no host"),
        ("ftp://ann:SECRET@github.com/ann/hw.git", "no address of a page"),
        ("x::https://ann:SECRET@github.com/ann/hw.git", "no address of a page"),
        ("ext::sh -c SECRET", "no address of a page"),
        ("https://ann:SECRET#rest@github.com/ann/hw", "no address of a page"),
        ("https://github.com/ann/hw?token=SEC@SECRET", "no address of a page"),
        ("git@github-work:ann/hw.git", "only your ssh settings know"),
        ("https://ghproxy.com/https://github.com/ann/hw.git", "through a proxy"),
        ("https://mirror.example.org/github.com/ann/hw.git", "through a proxy"),
        ("ghproxy.com/https://github.com/ann/hw", "on no host"),
        ("https://github.com/ann", "names no repository"),
        ("https://github.com/ann/.git", "names no repository"),
        ("https://github.com/ann/hw/more", "more than a repository"),
        ("https://github.com/ann/h~w", "a name that no repository has"),
    ],
)
def test_others_make_none_and_it_is_said_why(url: str, why: str) -> None:
    with pytest.raises(NoLink) as raised:
        link_to(url, SHA)
    told = problem_of("origin", url, raised.value)
    assert why in told and "SECRET" not in told
    assert why == "on no host" or "set-url origin https://github.com/USER/REPOSITORY.git" in told
