"""Remotes of a student's checkout: what may be shown of one, and the page that it leads to."""

from __future__ import annotations

import re
from typing import Final

from grader.submission.course import HOSTS
from grader.submission.links import SAME_HOST, BadLink, Rules, parse_link

_ADDRESS = re.compile(r"((?:[\w.+-]+::)*)([\w.+-]+)://(.*)", re.DOTALL | re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(?::(\d*))?", re.IGNORECASE)
_SCP = re.compile(r"([^/:@\s]+):(?!//)(.*)", re.DOTALL)
_PAGES: Final = ("https", "http", "ssh", "git", "git+ssh", "ssh+git")
_NOWHERE: Final = "it is on no host"


class NoLink(ValueError):
    """No link can be made from a remote; the message says why, and holds nothing secret."""


def shown(url: str) -> str:
    """What may be printed of a remote: no user, password, token, query or fragment.

    Where an @ stands so that nobody can tell the host from a secret, the whole is left out.
    """
    url = url.strip()
    match = _ADDRESS.fullmatch(url)
    if match is None:
        return _plain(url) if "::" not in url else f"{url.partition('::')[0][:20]}::…"
    helpers, scheme, rest = match.groups()
    before = f"{helpers}{scheme}://"
    head, end, tail = _cut(rest)
    head = head.rpartition("@")[2]
    where = head.partition("/")[0]
    if (end and "@" in tail) or (where and not _HOST.fullmatch(where)):
        return f"{before}…"
    return before + head


def _plain(url: str) -> str:
    head, end, tail = _cut(url)
    if end and "@" in tail:
        return "…"
    return head.rpartition("@")[2] if end or "@" in head else url


def _cut(text: str) -> tuple[str, str, str]:
    """(address, ? or #, what follows it)."""
    match = re.search(r"[?#]", text)
    return (
        (text, "", "") if match is None else (text[: match.start()], match[0], text[match.end() :])
    )


def is_address(name: str) -> bool:
    """Whether a "remote" is an address in place of a name, as after `git push -u ADDRESS`."""
    return "://" in name or "::" in name or "/" in name or "@" in name or "\\" in name


def link_to(url: str, sha: str) -> str:
    """`https://HOST/USER/REPOSITORY/tree/SHA` for a remote's URL. Raises `NoLink`."""
    clean = shown(url)
    if clean.startswith(("/", "file:", ".", "~")) or re.match(r"[A-Za-z]:[\\/]", clean):
        raise NoLink(_NOWHERE)
    host, path = _host_and_path(clean)
    parts = [part for part in path.strip("/").split("/") if part]
    if parts:
        parts[-1] = re.sub(r"\.git$", "", parts[-1], flags=re.IGNORECASE)
    if any(":" in part for part in parts) or (len(parts) > 2 and parts[0].lower() in HOSTS):
        raise NoLink("it goes through a proxy")
    if len(parts) < 2 or not parts[-1]:
        raise NoLink("it names no repository")
    if len(parts) > 2 and host in HOSTS:
        raise NoLink("it names more than a repository")
    # Where groups nest, a `-` says where the repository ends.
    between = "/-/tree/" if len(parts) > 2 else "/tree/"
    link = f"https://{host}/{'/'.join(parts)}{between}{sha}"
    try:
        pinned = parse_link(link, Rules(hosts=(host,))).ref == sha
    except BadLink:
        pinned = False
    if not pinned:
        raise NoLink("it has a name that no repository has")
    return link


def _host_and_path(clean: str) -> tuple[str, str]:
    match = _ADDRESS.fullmatch(clean)
    if match is not None:
        scheme = match[2].lower()
        where, _, path = match[3].partition("/")
        if match[1] or scheme not in _PAGES or "…" in where:
            raise NoLink("it is no address of a page")
        port = _HOST.fullmatch(where)
        if port is None:
            raise NoLink("it is no address of a page")
        host = port[1].lower()
        if scheme in ("http", "https"):
            if port[2] and port[2] not in ("80", "443"):
                host = f"{host}:{port[2]}"
            return SAME_HOST.get(host, host).removeprefix("www."), path
    else:
        scp = _SCP.fullmatch(clean)
        if scp is None:
            raise NoLink(_NOWHERE)
        host, path = scp[1].lower(), scp[2]
        if "::" in clean or "\\" in path:
            raise NoLink("it is no address of a page")
    host = SAME_HOST.get(host, host).removeprefix("www.")
    if "." not in host:
        raise NoLink("its host is a name that only your ssh settings know")
    return host, path


def problem_of(name: str, url: str, error: NoLink) -> str:
    """What to tell about a remote of which no link can be made."""
    if str(error) == _NOWHERE:
        return (
            f"the remote {name} is {shown(url)}, which is on no host: nobody could follow a link "
            "to it"
        )
    return (
        f"no link can be made from the remote {name} ({shown(url)}): {error}; git remote set-url "
        f"{name} https://github.com/USER/REPOSITORY.git"
    )
