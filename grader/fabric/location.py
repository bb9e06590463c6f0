"""Finding the user's line behind a call."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from types import CodeType, FrameType, TracebackType

from grader.fabric.record import Location

LONGEST = 64 << 10
"""Characters of an exception's message that are kept."""
LONGEST_NAME = 200
"""Of its class's name, which a program may choose as it likes."""

_KIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NOT_THE_USERS = (
    _KIT,
    sysconfig.get_paths()["stdlib"] + os.sep,
    sysconfig.get_paths()["purelib"] + os.sep,
    "<frozen",
    "<string>",
)
#: Parts of torch that communicate on their own, and in them the functions that programs call.
_TORCH = os.path.join(sysconfig.get_paths()["purelib"], "torch")
_COMPONENTS = (os.path.join(_TORCH, "distributed", ""), os.path.join(_TORCH, "nn", ""))
_CALLS = ("distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py")
_of_user: dict[CodeType, bool] = {}


def is_users(code: CodeType) -> bool:
    """Whether this code is the user's: not PyTorch's, the standard library's or the kit's."""
    known = _of_user.get(code)
    if known is None:
        known = _of_user[code] = not code.co_filename.startswith(_NOT_THE_USERS)
    return known


def user_location(frame: FrameType | None = None) -> Location | None:
    """The innermost line of the user's source among the callers (or from `frame` outwards)."""
    if frame is None:
        frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if is_users(code):
            return Location(code.co_filename, frame.f_lineno, code.co_qualname)
        frame = frame.f_back
    return None


def called_by_user() -> bool:
    """Whether the user's own code made this communication call, and not a component of torch."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code):
            return True
        file = frame.f_code.co_filename
        if file.startswith(_COMPONENTS) and not file.endswith(_CALLS):
            return False
        frame = frame.f_back
    return False


def traceback_location(tb: TracebackType | None) -> Location | None:
    """The innermost line of the user's source in a traceback."""
    found: Location | None = None
    while tb is not None:
        code = tb.tb_frame.f_code
        if is_users(code):
            found = Location(code.co_filename, tb.tb_lineno, code.co_qualname)
        tb = tb.tb_next
    return found


def clipped(text: str, longest: int = LONGEST) -> str:
    """The text, or its beginning and its end: a program may make a message as long as it likes."""
    half = longest // 2
    left_out = len(text) - 2 * half
    if left_out <= 0:
        return text
    return f"{text[:half]}[… {left_out} characters left out …]{text[-half:]}"


def user_traceback(error: BaseException, message: str) -> str:
    """The traceback of `error` without the frames of PyTorch, the standard library and the kit.

    message: what it says. A long one, and a long name of its class, are clipped.
    """
    kept = [
        summary
        for summary in traceback.extract_tb(error.__traceback__)
        if not summary.filename.startswith(_NOT_THE_USERS)
    ]
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if len(name) <= LONGEST_NAME and len(message) <= LONGEST:
        last = traceback.format_exception_only(error)
    else:
        last = [f"{clipped(name, LONGEST_NAME)}: {clipped(message)}"]
    return "".join([*traceback.format_list(kept), *last]).rstrip()


def user_stack(frame: FrameType, deepest: int = 4) -> str:
    """The innermost lines of the user's source on the stack of `frame`."""
    kept = [s for s in traceback.extract_stack(frame) if not s.filename.startswith(_NOT_THE_USERS)]
    return "".join(traceback.format_list(kept[-deepest:])).rstrip()
