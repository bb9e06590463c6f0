"""A timeline as a Chrome trace: JSON that Perfetto (ui.perfetto.dev) opens.

Trace Event Format: complete events ("X") with `ts` and `dur` in microseconds, metadata ("M") for
names, flow events ("s", "f") for the arrow from a send to its receive. A process is a rank. Slices
of one track must nest, and messages in flight together need not, so sends, receives and
collectives have as many tracks as overlap.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from grader.fabric.clock_timeline import Timeline
from grader.fabric.record import Location, Operation

#: First track of each family; it holds 1,000 overlapping slices before it meets the next.
TRACKS = {"compute": 0, "send": 1_000, "recv": 2_000, "collective": 3_000}

JsonEvent = dict[str, Any]


def chrome_trace(timeline: Timeline) -> dict[str, Any]:
    """The trace as a JSON-ready dict: {"traceEvents": […], "displayTimeUnit": "ns", …}."""
    events: list[JsonEvent] = []
    flows: dict[int, JsonEvent] = {}
    for rank in range(timeline.record.world_size):
        events.append(_name("process_name", rank, 0, f"rank {rank}"))
        events.append({"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0,
                       "args": {"sort_index": rank}})  # fmt: skip
        events.append(_name("thread_name", rank, TRACKS["compute"], "compute"))
        for segment in timeline.segments(rank):
            what: str = segment.kind
            if segment.kind == "wait":
                what = f"wait for {describe(timeline.record.operations[segment.operation])}"
            events.append(
                _slice(what, segment.kind, rank, TRACKS["compute"], segment.begin, segment.end)
                | {"args": _where(segment.location)}
            )
        events.extend(_transfers(timeline, rank, flows))
    events.extend(_arrows(flows))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "cluster": timeline.cluster.name,
            "makespan_seconds": timeline.makespan,
            "complete": timeline.complete,
            "order_dependent": timeline.order_dependent,
        },
    }


def write_chrome_trace(timeline: Timeline, path: str | Path) -> None:
    """Write `chrome_trace(timeline)` to a file."""
    text = json.dumps(chrome_trace(timeline), separators=(",", ":"), allow_nan=False)
    Path(path).write_text(text, encoding="utf-8")


def describe(operation: Operation) -> str:
    """An operation in a few words: "send to 3", "all_reduce"."""
    if operation.kind == "send":
        return f"send to {operation.peer}"
    if operation.kind == "recv":
        return f"recv from {operation.peer}"
    return operation.kind


def lanes(spans: list[tuple[float, float]]) -> list[int]:
    """A lane for each span (begin, end), so that spans of one lane do not overlap; few lanes."""
    chosen = [0] * len(spans)
    ends: list[float] = []
    for i in sorted(range(len(spans)), key=lambda i: spans[i]):
        begin, end = spans[i]
        lane = next((k for k, used in enumerate(ends) if used <= begin), len(ends))
        if lane == len(ends):
            ends.append(end)
        ends[lane] = end
        chosen[i] = lane
    return chosen


def _transfers(timeline: Timeline, rank: int, flows: dict[int, JsonEvent]) -> list[JsonEvent]:
    """Slices of the rank's operations and names of their tracks; sends and receives go to `flows`.

    flows[match] collects the ends of an arrow: keys "send" and "recv".
    """
    operations = timeline.record.operations
    families: dict[str, list[Operation]] = {"send": [], "recv": [], "collective": []}
    for index in timeline.operations(rank):
        family = operations[index].kind
        families.get(family, families["collective"]).append(operations[index])
    events: list[JsonEvent] = []
    for family, mine in families.items():
        spans = [(timeline.begin[op.id], timeline.end[op.id]) for op in mine]
        tracks = lanes(spans)
        for lane in range(max(tracks, default=-1) + 1):
            name = family if lane == 0 else f"{family} {lane + 1}"
            events.append(_name("thread_name", rank, TRACKS[family] + lane, name))
        for op, lane, (begin, end) in zip(mine, tracks, spans, strict=True):
            event = _slice(describe(op), family, rank, TRACKS[family] + lane, begin, end)
            event["args"] = _where(op.location) | {
                "bytes": op.nbytes,
                "operation": op.id,
                "posted_us": _microseconds(timeline.posted[op.id]),
            }
            events.append(event)
            if family != "collective":
                flows.setdefault(op.match, {})[family] = event
    return events


def _arrows(flows: dict[int, JsonEvent]) -> list[JsonEvent]:
    """A flow from each send to its receive. It must start and end inside the two slices."""
    events: list[JsonEvent] = []
    for match, ends in flows.items():
        if "send" not in ends or "recv" not in ends:
            continue
        for phase, event, share in (("s", ends["send"], 0.0), ("f", ends["recv"], 0.999)):
            flow = {"ph": phase, "name": "message", "cat": "message", "id": match}
            flow |= {
                "pid": event["pid"],
                "tid": event["tid"],
                "ts": round(event["ts"] + share * event["dur"], 6),
            }
            events.append(flow | {"bp": "e"} if phase == "f" else flow)
    return events


def _name(kind: str, rank: int, track: int, name: str) -> JsonEvent:
    return {"ph": "M", "name": kind, "pid": rank, "tid": track, "args": {"name": name}}


def _slice(name: str, category: str, rank: int, track: int, begin: float, end: float) -> JsonEvent:
    ts = _microseconds(begin)
    duration = max(0.0, round(_microseconds(end) - ts, 6))
    return {"ph": "X", "name": name, "cat": category, "pid": rank, "tid": track, "ts": ts,
            "dur": duration}  # fmt: skip


def _where(location: Location | None) -> dict[str, Any]:
    if location is None:
        return {}
    return {"source": str(location), "function": location.function}


def _microseconds(seconds: float) -> float:
    return 0.0 if math.isnan(seconds) else round(seconds * 1e6, 6)
