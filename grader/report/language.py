"""Words of the reports, in English and Chinese. Ids, JSON and Python messages stay English."""

from __future__ import annotations

from typing import Literal

Language = Literal["en", "zh"]

CATALOGUE: dict[Language, dict[str, str]] = {
    "en": {
        "task": "task",
        "status": "status",
        "points": "points",
        "progress": "share",
        "passed": "passed",
        "partial": "partial",
        "failed": "failed",
        "unimplemented": "not implemented",
        "error": "error",
        "timeout": "timeout",
        "skipped": "skipped",
        "not_run": "not run yet",
        "changed": "changed since",
        "running": "running",
        "likely_cause": "likely cause",
        "warning": "warning",
        "more_warnings": "… and {count} more warnings",
        "as_above": "the same as {check!r} above",
        "worth": "worth {points}",
        "graded": "grading {solution} on {device}, seed {seed}",
        "total": "total: {points} of {max_points} points "
        "({percent} % of what could be earned here)",
        "nothing": "total: nothing could be graded here",
        "skipped_points": "skipped here, {points} points: {tasks}",
        "seconds": "{seconds} s",
        "interrupted": "interrupted: what had not run counts as not earned",
        "status_total": "{points} of {max_points} points in the last results of {solution}",
    },
    "zh": {
        "task": "任务",
        "status": "状态",
        "points": "得分",
        "progress": "完成度",
        "passed": "通过",
        "partial": "部分通过",
        "failed": "未通过",
        "unimplemented": "未实现",
        "error": "出错",
        "timeout": "超时",
        "skipped": "跳过",
        "not_run": "尚未运行",
        "changed": "之后有改动",
        "running": "运行中",
        "likely_cause": "可能的原因",
        "warning": "警告",
        "more_warnings": "……另有 {count} 条警告",
        "as_above": "与上面的 {check!r} 相同",
        "worth": "{points} 分",
        "graded": "正在评测 {solution}，设备 {device}，随机种子 {seed}",
        "total": "总分：{points} / {max_points} 分（占本机可得分数的 {percent} %）",
        "nothing": "总分：本机没有可评测的内容",
        "skipped_points": "本机跳过 {points} 分：{tasks}",
        "seconds": "用时 {seconds} 秒",
        "interrupted": "已中断：未运行的检查按未得分计",
        "status_total": "{solution} 最近一次结果：{points} / {max_points} 分",
    },
}


def text(language: str, key: str, **values: object) -> str:
    """The words for `key`, with `values` filled in."""
    words = CATALOGUE["zh" if language == "zh" else "en"][key]
    return words.format(**values) if values else words
