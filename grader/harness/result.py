"""What comes over the channel of a call: values of progress, then exactly one result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grader.harness import frames
from grader.harness.errors import DecodeError
from grader.harness.reply import RaisedError, Status, failure, raised_error

_FORGED = "a result that the harness did not write came from the call"


class Refused(Exception):
    """Something forged or broken came; the message says what."""


class ResultReader:
    """Reads a call's result as it comes in; ``value`` and ``error`` hold it.

    token: that the sender must know. max_nbytes: of everything together.
    """

    def __init__(
        self,
        token: str,
        max_nbytes: int,
        progress: Callable[[Any], None] | None,
        build: Callable[[str, dict[str, Any]], Any] | None,
    ) -> None:
        self.value: Any = None
        self.error: RaisedError | None = None
        self.received = 0
        self._token = token
        self._max_nbytes = max_nbytes
        self._progress = progress
        self._build = build
        self._frames = frames.FrameReader(max_nbytes + frames.MAX_JSON_NBYTES)
        self._verdict: tuple[Status, str] | None = None

    def feed(self, data: bytes) -> tuple[Status, str] | None:
        """Take bytes; the call's status and detail when they complete its result.

        Raises:
            Refused: this is no result of ours, or more than one. No value is left.
        """
        self.received += len(data)
        before = self._verdict
        try:
            if self.received > self._max_nbytes + frames.MAX_JSON_NBYTES:
                raise frames.FrameError(f"more than {self._max_nbytes} bytes")
            for message, blob in self._frames.feed(data):
                self._take(message, blob)
        except (frames.FrameError, DecodeError) as error:
            self.value = self.error = None
            words = f"the result channel holds something else than one result: {error}"
            raise Refused(words) from error
        except Refused:
            self.value = self.error = None
            raise
        return self._verdict if before is None else None

    def _take(self, message: dict[str, Any], blob: bytes) -> None:
        from grader.harness.codec import decode

        if self._verdict is not None:
            raise Refused("more than one result came from the call")
        status, tree, bound = message.get("status"), message.get("tree"), self._max_nbytes
        if message.get("token") != self._token:
            raise Refused(_FORGED)
        if message.get("kind") == "progress" and self._progress is not None:
            self._progress(decode(tree, blob, name="progress", max_nbytes=bound))
        elif status == "ok":
            self.value = decode(tree, blob, build=self._build, name="result", max_nbytes=bound)
            self._verdict = ("ok", "")
        elif status in ("raised", "left"):
            self.error = raised_error(message.get("error"))
            self._verdict = failure(status, self.error)
        else:
            raise Refused(_FORGED)
