"""Headless Chromium: what it says of a page, and how the page looks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
WHY_NOT = "no Chromium here (Debian: apt-get install chromium)"

#: Runs in the page; what it finds is read from an attribute of the document.
PROBE = """
<script>
addEventListener("load", () => {
  const page = document.documentElement;
  const wide = [...document.querySelectorAll("body *")].filter(each =>
    each.getBoundingClientRect().right > page.clientWidth + 1 && !each.closest("pre"));
  const pictures = [...document.querySelectorAll(".picture")].map(each =>
    each.shadowRoot?.querySelector("svg")?.getBoundingClientRect().width ?? 0);
  page.dataset.probe = JSON.stringify({
    inner: innerWidth, scroll: page.scrollWidth, pictures,
    wide: wide.map(each => each.tagName + "." + each.getAttribute("class")),
    charts: [...document.querySelectorAll("svg.chart")].map(e => e.getBoundingClientRect().width),
    background: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
    requests: performance.getEntriesByType("resource").map(each => each.name),
    text: document.body.innerText.length,
  });
});
</script>
"""


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--disable-gpu", "--hide-scrollbars",
               "--disable-dev-shm-usage", "--enable-logging=stderr", "--window-size=1280,900",
               "--virtual-time-budget=3000"]  # fmt: skip
    if os.getuid() == 0:
        command.append("--no-sandbox")
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)


def _scheme(dark: bool) -> str:
    return f"--blink-settings=preferredColorScheme={0 if dark else 1}"


def probe(page: Path, dark: bool = False) -> tuple[dict[str, Any], list[str]]:
    """(what `PROBE` found, messages on the console) of a page at laptop width."""
    copy = page.with_name("probed.html")
    source = page.read_text(encoding="utf-8")
    copy.write_text(source.replace("</head>", f"{PROBE}</head>"), encoding="utf-8")
    try:
        run = _run(_scheme(dark), "--dump-dom", copy.as_uri())
    finally:
        copy.unlink()
    found = re.search(r'data-probe="([^"]*)"', run.stdout)
    assert found is not None, run.stderr[-2000:]
    console = [line for line in run.stderr.splitlines() if ":CONSOLE" in line]
    return json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&")), console


def screenshot(page: Path, image: Path, dark: bool = False) -> bytes:
    """A PNG of the page at laptop width."""
    _run(_scheme(dark), f"--screenshot={image}", page.as_uri())
    return image.read_bytes()
