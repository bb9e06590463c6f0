"""Words of the reports, in English and Chinese. Ids, JSON and Python messages stay English.

The English words stand here under their keys; every other language is a gettext catalogue in
`grader/locale`, whose msgids are the English words. Messages of checks are English where they are
raised and translated where they are shown: see `translated`.
"""

from __future__ import annotations

import os
from typing import Literal

from grader.report import catalogue

Language = Literal["en", "zh"]

WORDS: dict[str, str] = {
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
    "total": "total: {points} of {max_points} points ({percent} % of what could be earned here)",
    "nothing": "total: nothing could be graded here",
    "skipped_points": "skipped here, {points} points: {tasks}",
    "seconds": "{seconds} s",
    "interrupted": "interrupted: what had not run counts as not earned",
    "status_total": "{points} of {max_points} points in the last results of {solution}",
    "status_none": "no results of {solution} yet",
    "next_fix": "next: {task} has lost points; `grader check {task}` says where",
    "next_again": "next: {task} has changed since its last result; `grader check {task}`",
    "next_new": "next: {task}, {points} points ({title}); edit {path}, then `grader check {task}`",
    "next_hint": "stuck? `grader hint {task}`",
    "next_nothing": "nothing is left to do: every point is earned",
    "hint_of": "hint {number} of {count} for {task}",
    "more_hints": "`grader hint {task}` again shows the next one; the handout is {handout}",
    "no_more_hints": "that is all: the handout, {handout}, and its papers know more",
    "no_hint_yet": "no hint of {task} has been shown yet: leave out --again",
    "watching": "watching {count} files; Ctrl-C ends",
    "watch_idle": "{clock}  waiting for an edit",
    "watch_edit": "{clock}  {files} changed",
    "watch_took": "{seconds} s from the edit to the verdict",
    "watch_no_task": "no task that you watch lives in {files}",
    "syntax_error": "syntax error",
    "fault_of_the_kit": "this is a fault of the kit, not of the solution; please report it",
    "note_no_history": "note: `grader status` will not know of this run: {problem}",
    "note": "note: {message}",
    "problem": "problem: {message}",
    "no_link": "no link yet: put right what is listed first, then run grader submit again",
    "commit": "commit",
    "link": "link",
    "step": "{done}/{total} {verb}{left}: {words}",
    "left": ", {time} left",
    "in_hours": "about {hours} h {minutes} min",
    "in_minutes": "about {minutes} min",
    "in_no_time": "less than 1 min",
    "of_most": "{points} of {most}",
    "students": "{count} students: {listed}",
    "counted": "{count} {status}",
    "against": "against {baseline}",
    "report_written": "report: {path}",
    "your_run": "one of your runs: {ranks} ranks over virtual time",
    "run_failed": "this run ended with the fault that is told above",
    "drawn_on": "Drawn for links of {latency} latency and {bandwidth}, so that both can be seen.",
    "run_summary": "{makespan}, {messages} messages, {total}, {rounds} rounds.",
    "perfetto": "trace for ui.perfetto.dev",
    "rank_by_rank": "rank by rank",
    "sent": "sent",
    "received": "received",
    "messages": "messages",
    "computing": "computing",
    "idle": "idle",
    "your_schedule": "your schedule",
    "bytes_and_optimum": "bytes against the optimum",
    "yours": "yours",
    "allowed": "allowed",
    "throughput": "throughput on real processes",
    "ratio_to": "{ratio} of the speed of {baseline}; no points up to {floor}, all from {full}",
    "numbers": "numbers of the checks",
    "whole_vector": "bytes of the whole vector",
    "busbw": "busbw, GB/s",
    "computes": "computes",
    "waits": "waits",
    "sends": "sends",
    "receives": "receives",
    "collective": "collective",
    "sim_no_group": "note: no rank initialised torch.distributed",
    "sim_ran": "{ranks} ranks on {cluster}: {virtual} of virtual time{dependent} ({real} here)",
    "sim_dependent": ", order-dependent",
    "sim_moved": "{total} moved, {messages} messages, {rounds} rounds",
    "sim_trace": "trace: {path} (opens in https://ui.perfetto.dev)",
    "sim_picture": "picture: {path}",
    "sim_more": "… and {ranks}",
    "overlapped": "overlapped",
    "sim_error": "error: {message}",
    "sim_warning": "warning: {message}",
    "colon": ": ",
    "comma": ", ",
    "semicolon": "; ",
    "brackets": " ({words})",
}


def language_of(option: object | None) -> Language:
    """The language asked for ("zh", or None: what the locale says)."""
    if option is not None:
        return "zh" if str(option) == "zh" else "en"
    for name in ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def text(language: str, key: str, **values: object) -> str:
    """The words for `key`, with `values` filled in."""
    words = WORDS[key]
    if language == "zh":
        words = catalogue.find(words) or words
    return words.format(**values) if values else words


def translated(language: str, message: str) -> str:
    """A check's name, a cause or a failure message, as far as the catalogue knows it."""
    return catalogue.translate(message) if language == "zh" and message else message
