"""`grader sim`: what a script did on the simulated cluster, for people."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from rich.cells import cell_len

from grader.fabric.chrome import write_chrome_trace
from grader.fabric.cluster import Cluster
from grader.fabric.cluster_file import read_cluster
from grader.fabric.findings import more_ranks, size_text
from grader.fabric.picture import seconds_text, write_picture
from grader.fabric.script import run_script
from grader.fabric.trace import TimedTrace, Trace
from grader.report.language import text, translated

#: More ranks than this are summed up in the table.
SHOWN = 16


def simulate_script(
    script: Path,
    ranks: int,
    cluster: Cluster,
    argv: list[str],
    *,
    trace_file: Path | None = None,
    picture_file: Path | None = None,
    seed: int = 0,
    schedule: int | None = None,
    time_limit: float = 60.0,
    out: TextIO,
    language: str = "en",
) -> int:
    """Run the script, print what happened to `out`, write the trace. 0 clean, 1 with findings.

    Raises grader.fabric.script.ScriptError when the script cannot be run.
    """
    result = run_script(
        script,
        ranks,
        argv,
        devices_per_node=cluster.devices_per_node,
        seed=seed,
        schedule=schedule,
        time_limit=time_limit,
    )
    trace = Trace(result.record)
    timed = trace.on(cluster)
    print(file=out)
    for finding in (*result.findings, *result.warnings):
        message = translated(language, finding.message)
        print(text(language, f"sim_{finding.severity}", message=message) + "\n", file=out)
    if not result.findings and not result.record.groups:
        print(text(language, "sim_no_group") + "\n", file=out)
    _summary(timed, cluster, result.seconds, out, language)
    if trace_file is not None:
        write_chrome_trace(timed.timeline, trace_file)
        print(text(language, "sim_trace", path=trace_file), file=out)
    if picture_file is not None:
        write_picture(timed.timeline, picture_file, title=script.name)
        print(text(language, "sim_picture", path=picture_file), file=out)
    return 1 if result.findings else 0


def _summary(
    timed: TimedTrace, cluster: Cluster, host_seconds: float, out: TextIO, language: str
) -> None:
    world = timed.record.world_size
    ran = text(
        language,
        "sim_ran",
        ranks=world,
        cluster=cluster.name,
        virtual=seconds_text(timed.makespan),
        dependent=text(language, "sim_dependent") if timed.record.order_dependent else "",
        real=seconds_text(host_seconds),
    )
    moved = text(
        language,
        "sim_moved",
        total=size_text(timed.total_bytes),
        messages=sum(timed.messages_sent),
        rounds=timed.rounds,
    )
    print(ran, moved, sep="\n", file=out)
    columns = ("sent", "received", "messages", "computing", "overlapped", "idle")
    heads = ["rank", *(text(language, name) for name in columns)]
    # A Chinese character takes two places.
    print(" ".join(" " * (11 - cell_len(name)) + name for name in heads), file=out)
    for rank in range(min(world, SHOWN)):
        row = (
            str(rank),
            size_text(timed.bytes_sent[rank]),
            size_text(timed.bytes_received[rank]),
            str(timed.messages_sent[rank]),
            seconds_text(timed.timeline.computing(rank)),
            seconds_text(timed.overlap(rank)),
            seconds_text(timed.idle(rank)),
        )
        print(" ".join(f"{cell:>11}" for cell in row), file=out)
    if world > SHOWN:
        more = translated(language, more_ranks(world - SHOWN))
        print(text(language, "sim_more", ranks=more), file=out)


def cluster_of(name: str, ranks: int) -> Cluster:
    """A preset by name, or the cluster that a TOML file describes; big enough for `ranks`.

    Raises ValueError with one line for the user.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        cluster = read_cluster(path)
    else:
        cluster = Cluster.preset(name, ranks)
    if cluster.devices < ranks:
        raise ValueError(f"{name} has {cluster.devices} devices, too few for {ranks} ranks")
    return cluster
