"""Numbers in Chinese, where sheets name assignments by them: 第一次作业, 作业三."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Behind 第 or 作业, or alone; what other words begin with is no number: 作业一起交.
_CHINESE_NUMBER: Final = re.compile(
    r"(?:(?<=第)|(?<=作[业業])|(?<![^\W_]))(\s*)([一二三四五六七八九]?十[一二三四五六七八九]?"
    r"|[零〇一二两三四五六七八九])(?=第|次|份|个|個|作|和|[^\u4e00-\u9fff]|$)"
)


def with_digits(text: str) -> str:
    """The text with the Chinese numbers of assignments, up to 九十九, as digits."""

    def digits(match: re.Match[str]) -> str:
        tens, ten, ones = match[2].rpartition("十")
        first = int(unicodedata.numeric(tens)) if tens else 1 if ten else 0
        return f"{match[1]}{10 * first + int(unicodedata.numeric(ones, 0) if ones else 0)}"

    return _CHINESE_NUMBER.sub(digits, text)
