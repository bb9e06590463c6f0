"""Frames are cut wherever the stream breaks; what is no frame is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.harness.frames import FrameError, FrameReader, pack

QUICK = settings(max_examples=40, deadline=None)


@QUICK
@given(st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=50)), max_size=4), st.data())
def test_frames_are_cut_wherever_the_stream_breaks(
    sent: list[tuple[str, bytes]], data: Any
) -> None:
    stream = b"".join(b"".join(pack({"text": text}, blob)) for text, blob in sent)
    reader, came = FrameReader(1000), []
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        came += reader.feed(stream[:count])
        stream = stream[count:]
    assert [(message["text"], blob) for message, blob in came] == sent


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\r\n",
        b"TPf1" + (10).to_bytes(4, "big") + (1 << 60).to_bytes(8, "big"),
        b"TPf1" + (2).to_bytes(4, "big") + bytes(8) + b"[]",
        b"TPf1" + (3).to_bytes(4, "big") + bytes(8) + b"NaN",
        b"TPf1" + (100_000).to_bytes(4, "big") + bytes(8) + b"[" * 100_000,
        b"TPf1" + (9_000).to_bytes(4, "big") + bytes(8) + b"9" * 9_000,
        b"TPf1" + (2).to_bytes(4, "big") + bytes(8) + b"\xff\xff",
    ],
)
def test_what_is_no_frame_is_refused(stream: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader(1 << 20).feed(stream)
