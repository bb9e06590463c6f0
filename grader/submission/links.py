"""Links as people paste them: which repository, which commit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from grader.submission.course import HOSTS

Kind = Literal["sha", "short", "ref"]

_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"), None)
_WIDE: Final = str.maketrans("：／．？＃＝＆－", ":/.?#=&-")
# What may stand in an address as pasted: it ends at quotes, spaces, Chinese and at a bracket that
# did not open in it.
_LETTER: Final = r"[A-Za-z0-9\-._~:/?#@!$&'*+,;=%^]"
_WRITTEN: Final = rf"(?:{_LETTER}|\({_LETTER}*\))+"
_ADDRESS = re.compile(rf"(?:https?://|ssh://|git@|www\.){_WRITTEN}", re.IGNORECASE)
_TRAILING: Final = ".,;:!?'*&"
# What is written behind a commit by GitHub, or by hand.
_BEHIND_SHA: Final = re.compile(r"([0-9a-f]{40})(?:[&(;,].*|\.patch|\.diff)", re.IGNORECASE)
_BEHIND_SHORT: Final = re.compile(r"([0-9a-f]{7,39})(?:\.patch|\.diff)", re.IGNORECASE)
_SSH = re.compile(r"(?:ssh://)?git@([^:/\s]+)(?::\d+/|[:/])/?(\S*)", re.IGNORECASE)
_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_SHA = re.compile(r"[0-9a-f]{40}", re.IGNORECASE)
_SHORT = re.compile(r"[0-9a-f]{7,39}", re.IGNORECASE)
_BEHIND = re.compile(r"\A[\s@:#,，)）]*([0-9a-f]{7,40})(?![0-9a-z])", re.IGNORECASE)
_REF = re.compile(r"(?!-)[^\s~^:?*\[\\\x00-\x1f\x7f]{1,250}")
_LOCAL = re.compile(r"(?:file://)?(/\S+?)/(?:tree|commits?)/([^?#\s]+?)/?(?:[?#]\S*)?")
_VIEWS: Final = ("tree", "commit", "commits", "blob", "src")
#: Hosts that answer ssh on the port of https, and whose repositories they hold.
SAME_HOST: Final = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}


class BadLink(ValueError):
    """A link that leads to no commit; the message says what was expected and what came."""


@dataclass(frozen=True)
class Link:
    """A commit in a repository.

    url: what git is given. ref: 40 hexadecimal digits ("sha"), the first 7 to 39 of them ("short"),
    or what follows /tree/ otherwise ("ref": a branch or tag, perhaps with a path behind it).
    """

    url: str
    ref: str
    kind: Kind = "sha"

    @property
    def pinned(self) -> bool:
        """Whether it always leads to the same commit."""
        return self.kind != "ref"


@dataclass(frozen=True)
class Rules:
    """Which links are taken. local: also paths of repositories on this machine, for tests."""

    hosts: Sequence[str] = HOSTS
    mirrors: Mapping[str, str] | None = None
    local: bool = False


def parse_link(text: str, rules: Rules | None = None) -> Link:
    """The commit that a pasted text names. Raises `BadLink`."""
    rules = rules or Rules()
    given = text.translate(_INVISIBLE).replace("\xa0", " ").strip()
    if rules.local:
        match = _LOCAL.fullmatch(given.strip("<>\"'"))
        if match is not None:
            return _link(match[1], match[2], given)
    wide = given.translate(_WIDE)
    found = list(_ADDRESS.finditer(wide)) or list(_bare(wide, rules.hosts))
    links: list[Link] = []
    for match in found:
        link = _one(match, wide, rules)
        if link not in links:
            links.append(link)
    if not links:
        raise BadLink(
            f"expected https://{rules.hosts[0] if rules.hosts else 'HOST'}/USER/REPOSITORY/tree/"
            f"COMMIT, got {_shown(given)}"
        )
    if len(links) > 1:
        raise BadLink(f"expected one link, got {len(links)}: {_shown(given)}")
    return links[0]


def _bare(text: str, hosts: Sequence[str]) -> Sequence[re.Match[str]]:
    """`github.com/ann/homework/tree/…`, as a browser shows it."""
    return [
        match
        for host in hosts
        for match in re.finditer(rf"(?<![\w./@-]){re.escape(host)}/{_WRITTEN}", text, re.IGNORECASE)
    ]


def _one(match: re.Match[str], text: str, rules: Rules) -> Link:
    address = match[0].rstrip(_TRAILING)
    host, path = _host_and_path(address)
    host = host if host in rules.hosts else SAME_HOST.get(host, host)
    if host not in rules.hosts:
        raise BadLink(
            f"{host[:100]!r} is none of the hosts of this course ({', '.join(rules.hosts)}): "
            f"{_shown(text)}"
        )
    parts = [unquote(part) for part in path.split("/") if part]
    owner, repository, rest = _repository(parts, text)
    repository, at, behind = repository.partition("@")
    commit = _commit(rest, behind if at else "", text)
    if commit is None:
        written_behind = _BEHIND.match(text[match.start() + len(address) :])
        if written_behind is None:
            raise BadLink(
                f"it names no commit: expected …/tree/COMMIT behind the repository, got "
                f"{_shown(text)}"
            )
        commit = written_behind[1]
    repository = re.sub(r"\.git$", "", repository, flags=re.IGNORECASE)
    for what, name in [*(("user", each) for each in owner), ("repository", repository)]:
        if _NAME.fullmatch(name) is None:
            raise BadLink(f"{name[:100]!r} is no name of a {what}: {_shown(text)}")
    before = (rules.mirrors or {}).get(host, f"https://{host}/")
    return _link(f"{before}{'/'.join(owner)}/{repository}.git", commit, text)


def _host_and_path(address: str) -> tuple[str, str]:
    ssh = _SSH.fullmatch(address)
    if ssh is not None:
        host, path = ssh[1], re.split(r"[?#]", ssh[2])[0]
    else:
        if "://" not in address:
            address = f"https://{address}"
        try:
            parts = urlsplit(address)
            host, path = parts.hostname or "", parts.path
            if parts.port not in (None, 80, 443):
                host = f"{host}:{parts.port}"
        except ValueError as error:
            raise BadLink(f"{error}: {_shown(address)}") from None
    return host.lower().removeprefix("www."), path


def _repository(parts: list[str], text: str) -> tuple[list[str], str, list[str]]:
    """(owner, repository, what follows); a `-` ends the repository where groups nest (GitLab)."""
    if "-" in parts[2:]:
        end = parts.index("-", 2)
        return parts[: end - 1], parts[end - 1], parts[end + 1 :]
    if len(parts) < 2:
        raise BadLink(f"it names no repository: {_shown(text)}")
    return parts[:1], parts[1], parts[2:]


def _commit(rest: list[str], behind: str, text: str) -> str | None:
    """The commit that the part behind the repository names; None when there is no such part."""
    if behind:
        return behind
    if len(rest) >= 2 and rest[0] in ("pull", "pulls", "merge_requests"):
        after = rest[2:]
        if len(after) >= 2 and after[0] in ("commits", "changes", "files"):
            return after[1].partition("..")[2].lstrip(".") or after[1]
        raise BadLink(
            f"it names a pull request, not one of its commits: open the commit there and copy that "
            f"link: {_shown(text)}"
        )
    if len(rest) == 1 and (_SHA.fullmatch(rest[0]) or _SHORT.fullmatch(rest[0])):
        return rest[0]
    if len(rest) >= 2 and rest[0].lower() in _VIEWS:
        rest = rest[2:] if rest[0] == "src" and rest[1] in ("commit", "branch", "tag") else rest[1:]
        return rest[0] if _SHA.fullmatch(rest[0]) or _SHORT.fullmatch(rest[0]) else "/".join(rest)
    return None


def _link(url: str, commit: str, text: str) -> Link:
    commit = re.sub(r"\Arefs/(?:heads|tags)/", "", commit.strip().strip(_TRAILING).strip())
    behind = _BEHIND_SHA.fullmatch(commit) or _BEHIND_SHORT.fullmatch(commit)
    if behind is not None:
        commit = behind[1]
    if _SHA.fullmatch(commit):
        return Link(url, commit.lower(), "sha")
    if _SHORT.fullmatch(commit):
        return Link(url, commit.lower(), "short")
    if re.fullmatch(r"[0-9a-f]{41,}", commit, re.IGNORECASE):
        raise BadLink(f"a commit has 40 hexadecimal digits, got {len(commit)}: {_shown(text)}")
    if _REF.fullmatch(commit) is None or ".." in commit or "//" in commit:
        raise BadLink(f"{commit[:100]!r} is no name of a commit, branch or tag: {_shown(text)}")
    return Link(url, commit, "ref")


def _shown(text: str) -> str:
    return repr(text[:200])
