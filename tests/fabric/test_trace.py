"""Volume and rounds, the Chrome trace, the picture, and records as columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from grader.fabric.chrome import chrome_trace, lanes, write_chrome_trace
from grader.fabric.clock import replay
from grader.fabric.clock_timeline import Timeline
from grader.fabric.cluster import uniform
from grader.fabric.picture import draw, seconds_text, write_picture
from grader.fabric.record import Record
from grader.fabric.record_io import record_from_columns, record_to_columns
from grader.fabric.trace import Trace
from tests.fabric import played_records as played
from tests.fabric.played_records import Script

N = 1 << 16


def played_by(algorithm: Callable[[Script, int, int], None], p: int, nbytes: int = N) -> Record:
    s = Script(p)
    algorithm(s, p, nbytes)
    return s.done()


def ring(s: Script, p: int, nbytes: int) -> None:
    played.ring_all_reduce(s, range(p), nbytes)


def mixed() -> Record:
    """Computation, overlapping messages, collectives, a set-up that does not count."""
    s = Script(4)
    s.record.groups[7] = (3, 1)
    s.region = False
    for rank in range(4):
        s.wait(rank, s.collective(rank, "barrier", 0))
    s.region = True
    for rank in range(4):
        s.compute(rank, flops=10**8 * (rank + 1), nbytes=5)
        ops = [s.send(rank, (rank + 1) % 4, 100_000) for _ in range(3)]
        ops += [s.recv(rank, (rank - 1) % 4, -1) for _ in range(3)]
        s.compute(rank, flops=8 * 10**8)
        s.wait(rank, *ops)
        s.wait(rank, s.collective(rank, "all_to_all", 10, splits=(1, 2, 3, 4)))
    for rank in (1, 3):
        s.wait(rank, s.collective(rank, "broadcast", 64, group=7, root=3))
    return s.done()


def timed(record: Record) -> Timeline:
    return replay(record, uniform(record.world_size, 5e-6, 50e9))


@pytest.mark.parametrize(
    ("algorithm", "p", "rounds"),
    [
        (ring, 8, 14),
        (played.pairwise_all_reduce, 8, 7),
        (played.posted_at_once, 8, 1),
        (played.parameter_server, 8, 2),
        (played.recursive_doubling, 8, 3),
        (played.recursive_doubling, 6, 3),  # of 4 steps, 3 hang on each other
        (played.halving_doubling, 8, 6),
        (played.halving_doubling, 7, 6),
        (played.binomial_broadcast, 8, 3),
        (played.binomial_broadcast, 11, 3),
        (played.binomial_all_reduce, 8, 6),
    ],
)
def test_rounds_are_the_longest_chain_of_received_messages(
    algorithm: Callable[[Script, int, int], None], p: int, rounds: int
) -> None:
    trace = Trace(played_by(algorithm, p))
    assert trace.rounds == rounds
    assert trace.complete


def test_sends_one_after_another_are_one_round() -> None:
    s = Script(4)
    for dst in (1, 2, 3):
        s.step(0, [(dst, N)], [])
        s.step(dst, [], [0])
    assert Trace(s.done()).rounds == 1


def test_volume_of_a_ring() -> None:
    trace = Trace(played_by(ring, 8))
    assert trace.bytes_sent == trace.bytes_received == [14 * N // 8] * 8
    assert trace.messages_sent == trace.messages_received == [14] * 8
    assert trace.peers == [{(rank + 1) % 8} for rank in range(8)]
    assert trace.total_bytes == 14 * N
    assert trace.traffic[3, 4] == 14 * N // 8


def test_only_the_region_counts() -> None:
    s = Script(2)
    s.region = False
    s.step(0, [(1, N)], [])
    s.step(1, [], [0])
    s.region = True
    s.step(1, [(0, 5)], [])
    s.step(0, [], [1])
    trace = Trace(s.done())
    assert (trace.bytes_sent, trace.bytes_received) == ([0, 5], [5, 0])
    assert trace.rounds == 1
    assert trace.peers == [set(), {0}]
    assert [op.kind for op in trace.operations(1)] == ["send"]


@pytest.mark.parametrize(
    ("kind", "sent", "received"),
    [
        ("all_reduce", [150, 150, 150, 150], [150, 150, 150, 150]),
        ("reduce_scatter", [75, 75, 75, 75], [75, 75, 75, 75]),
        ("all_gather", [300, 300, 300, 300], [300, 300, 300, 300]),
        ("all_to_all", [75, 75, 75, 75], [75, 75, 75, 75]),
        ("broadcast", [0, 200, 100, 0], [100, 0, 100, 100]),
        ("reduce", [100, 0, 100, 100], [0, 200, 100, 0]),
        ("gather", [100, 0, 100, 100], [0, 300, 0, 0]),
        ("scatter", [0, 75, 0, 0], [25, 0, 25, 25]),
        ("barrier", [0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_collectives_count_as_one_round_and_their_algorithms_bytes(
    kind: str, sent: list[int], received: list[int]
) -> None:
    s = Script(4)
    root = 1 if kind in ("broadcast", "reduce", "gather", "scatter") else -1
    for rank in range(4):
        s.wait(rank, s.collective(rank, kind, 100, root=root))
    s.step(0, [(1, 0)], [])
    s.step(1, [], [0])
    trace = Trace(s.done())
    assert (trace.bytes_sent, trace.bytes_received) == (sent, received)
    assert trace.rounds == 2
    assert [dict(counter) for counter in trace.collectives] == [{kind: 1}] * 4
    assert len(trace.operations(2, kind)) == 1


def test_uneven_contributions_are_counted_as_they_are() -> None:
    s = Script(3)
    for rank, splits in enumerate([(9, 100, 0), (0, 9, 300), (50, 0, 9)]):
        s.wait(rank, s.collective(rank, "all_to_all", sum(splits), splits=splits))
    trace = Trace(s.done())
    assert trace.bytes_sent == [100, 300, 50]
    assert trace.bytes_received == [50, 100, 300]
    s = Script(3)
    for rank, nbytes in enumerate([1, 10, 100]):
        s.wait(rank, s.collective(rank, "all_gather", nbytes))
    trace = Trace(s.done())
    assert trace.bytes_sent == [101, 11, 110]
    assert trace.bytes_received == [110, 101, 11]


def test_collective_is_one_deeper_than_its_deepest_rank() -> None:
    s = Script(3)
    s.step(0, [(1, 1)], [])
    s.step(1, [], [0])
    s.step(1, [(2, 1)], [])
    s.step(2, [], [1])
    for rank in range(3):
        s.wait(rank, s.collective(rank, "barrier", 0))
    assert Trace(s.done()).rounds == 3
    s.step(0, [(1, 1)], [])
    s.step(1, [], [0])
    assert Trace(s.done()).rounds == 4


def test_cut_off_run_is_traced_as_far_as_it_got() -> None:
    s = Script(2)
    s.step(0, [(1, N)], [])
    s.step(1, [], [0])
    s.wait(0, s.recv(0, 1, 8))
    trace = Trace(s.done())
    assert not trace.complete
    assert trace.rounds == 1
    assert trace.bytes_received == [0, N]


def test_trace_on_a_cluster_has_the_clocks_numbers() -> None:
    record = mixed()
    cluster = uniform(4, 5e-6, 50e9)
    timeline = replay(record, cluster)
    on = Trace(record).on(cluster)
    assert on.makespan == timeline.makespan > 0
    assert on.overlap(0) == timeline.overlap(0) > 0
    assert on.idle(3) == timeline.idle(3) > 0
    assert on.complete
    assert on.bytes_sent == Trace(record).bytes_sent


# Chrome trace ---------------------------------------------------------------------------------

NUMBER = (int, float)
FIELDS = {
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER},
    "s": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "id": int},
    "f": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "id": int, "bp": str},
}


def test_chrome_trace_has_the_documented_fields(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_chrome_trace(timed(mixed()), path)
    trace = json.loads(path.read_text())
    assert {event["ph"] for event in trace["traceEvents"]} == set(FIELDS)
    for event in trace["traceEvents"]:
        for name, kind in FIELDS[event["ph"]].items():
            assert isinstance(event[name], kind), (name, event)
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0


def events_of(timeline: Timeline, phase: str) -> list[dict[str, Any]]:
    return [e for e in chrome_trace(timeline)["traceEvents"] if e["ph"] == phase]


def test_slices_of_a_chrome_track_never_overlap_and_every_track_is_named() -> None:
    timeline = timed(mixed())
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in events_of(timeline, "X"):
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for slices in tracks.values():
        slices.sort(key=lambda e: e["ts"])
        for before, after in pairwise(slices):
            assert before["ts"] + before["dur"] <= after["ts"] + 2e-6
    named = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events_of(timeline, "M")
        if e["name"] == "thread_name"
    }
    assert set(tracks) == set(named)
    names = {"compute", "send", "send 2", "send 3", "recv", "recv 2", "recv 3", "collective"}
    assert {name for (rank, _), name in named.items() if rank == 0} == names


def test_every_message_has_an_arrow_inside_its_two_slices() -> None:
    timeline = timed(mixed())
    slices = events_of(timeline, "X")
    starts = {e["id"]: e for e in events_of(timeline, "s")}
    ends = {e["id"]: e for e in events_of(timeline, "f")}
    assert len(starts) == 12 and starts.keys() == ends.keys()
    for flows, family in ((starts, "send"), (ends, "recv")):
        for flow in flows.values():
            inside = [
                e
                for e in slices
                if (e["pid"], e["tid"]) == (flow["pid"], flow["tid"])
                and e["ts"] <= flow["ts"] <= e["ts"] + e["dur"]
            ]
            assert [e["cat"] for e in inside] == [family]
    for match, start in starts.items():
        assert start["ts"] <= ends[match]["ts"] and ends[match]["bp"] == "e"
        assert ends[match]["pid"] == (start["pid"] + 1) % 4


def test_chrome_times_are_microseconds() -> None:
    s = Script(2)
    s.step(0, [(1, 50_000)], [])
    s.step(1, [], [0])
    (send,) = [e for e in events_of(timed(s.done()), "X") if e["cat"] == "send"]
    assert (send["ts"], send["dur"]) == (0, pytest.approx(6.0))
    assert send["args"]["bytes"] == 50_000
    assert send["args"]["source"] == "a.py:7"


def test_lanes_keep_overlapping_spans_apart() -> None:
    assert lanes([(0, 2), (1, 3), (2, 4), (1, 2)]) == [0, 2, 0, 1]


# Picture --------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def bars(svg: str, kind: str) -> int:
    return sum(e.get("class") == kind for e in ElementTree.fromstring(svg).iter(f"{SVG}rect"))


def test_picture_shows_lanes_bars_and_arrows(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    write_picture(timed(mixed()), path, "A <title> & more")
    svg = path.read_text()
    root = ElementTree.fromstring(svg)
    texts = [e.text for e in root.iter(f"{SVG}text")]
    assert "A <title> & more" in texts
    assert [text for text in texts if text and text.startswith("rank ")] == [
        f"rank {rank}" for rank in range(4)
    ]
    legend = 1
    assert bars(svg, "compute") == 8 + legend
    assert bars(svg, "send") == bars(svg, "recv") == 12 + legend
    assert bars(svg, "collective") == 6 + legend
    assert sum(e.get("class") == "arrow" for e in root.iter(f"{SVG}path")) == 12
    assert "prefers-color-scheme: dark" in svg


def test_picture_stays_inside_its_frame() -> None:
    root = ElementTree.fromstring(draw(timed(mixed())))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for element in root.iter(f"{SVG}rect"):
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        assert x >= 0 and x + float(element.get("width", 0)) <= width
        assert y >= 0 and y + float(element.get("height", 0)) <= height


def test_picture_of_many_ranks_says_what_it_leaves_out() -> None:
    svg = draw(timed(played_by(ring, 40, 40 * 64)), max_lanes=16)
    assert "only ranks 0 … 15 are drawn" in svg
    assert "rank 15</text>" in svg and "rank 16</text>" not in svg
    # Arrows between ranks 0 … 15 of 78 steps.
    assert f"only the first 600 of {15 * 78} arrows are drawn" in svg


def test_picture_of_a_run_that_was_cut_off_says_so() -> None:
    s = Script(1)
    s.wait(0, s.recv(0, 0, 8))
    assert "the run was cut off" in draw(timed(s.done()))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 ns"), (1.5, "1.5 s"), (0.0671, "67.1 ms"), (1.5e-6, "1.5 µs")]
)
def test_seconds_are_written_with_a_fitting_unit(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


# Columns --------------------------------------------------------------------------------------


def test_record_survives_columns() -> None:
    record = mixed()
    record.order_dependent = True
    record.operations[3].order_dependent = True
    assert record_from_columns(record_to_columns(record)) == record
    assert record_from_columns(record_to_columns(Script(3).done())) == Script(3).done()


def test_columns_are_flat_int64_tensors_and_plain_values() -> None:
    for name, column in record_to_columns(mixed()).items():
        if name == "strings":
            assert all(type(text) is str for text in column)
        elif name in ("world_size", "order_dependent"):
            assert isinstance(column, int)
        else:
            assert column.dtype == torch.int64 and column.dim() == 1, name


def test_every_column_is_checked() -> None:
    good = record_to_columns(mixed())
    for name in good:
        missing = {key: value for key, value in good.items() if key != name}
        with pytest.raises(ValueError, match=name):
            record_from_columns(missing)
        with pytest.raises(ValueError, match=name):
            record_from_columns(good | {name: "text"})
        if isinstance(good[name], torch.Tensor):
            with pytest.raises(ValueError):
                record_from_columns(good | {name: torch.cat([good[name], torch.tensor([0])])})
            with pytest.raises(ValueError, match=name):
                record_from_columns(good | {name: good[name].double()})


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("op_rank", 0, 4),
        ("op_rank", 0, 1),
        ("op_kind", 0, 10_000),
        ("op_group", 0, 99),
        ("op_peer", 5, -2),
        ("op_peer", 5, 4),
        ("op_nbytes", 5, -1),
        ("op_match", 5, 0),
        ("op_location", 0, 10_000),
        ("op_shape_offsets", 1, 1_000_000),
        ("op_shape_offsets", 0, 1),
        ("program_offsets", 1, -5),
        ("event_kind", 0, 3),
        ("event_kind", 0, 2),  # a wait before its post
        ("event_kind", 1, 1),  # posted twice
        ("event_operation", 0, 1_000),
        ("event_operation", 0, -1),
        ("event_operation", 1, 1),
        ("event_flops", 2, -1),
        ("event_region", 2, 7),
        ("group_ranks", 0, 1),
        ("group_ranks", 0, 9),
        ("place_file", 0, -1),
    ],
)
def test_columns_of_no_possible_run_are_refused(name: str, index: int, value: int) -> None:
    columns = record_to_columns(mixed())
    columns[name] = columns[name].clone()
    assert columns[name][index] != value
    columns[name][index] = value
    with pytest.raises(ValueError, match=r"of a record|of operation"):
        record_from_columns(columns)


def test_world_size_and_kinds_of_a_stranger_are_bounded() -> None:
    columns = record_to_columns(mixed())
    with pytest.raises(ValueError, match="world_size"):
        record_from_columns(columns | {"world_size": 10**12})
    strings = ["mystery" if text == "barrier" else text for text in columns["strings"]]
    with pytest.raises(ValueError, match="mystery"):
        record_from_columns(columns | {"strings": strings})


def test_number_beyond_64_bits_is_refused() -> None:
    s = Script(1)
    s.compute(0, flops=1 << 70)
    with pytest.raises(ValueError, match="64 bits"):
        record_to_columns(s.done())
