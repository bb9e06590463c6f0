"""Cases of assignment 0 about links: tables as published, and a simulation event by event."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from grader.checks.a0_cases import Case, Suspects, expect_number, shown
from grader.checks.framework import CheckFailed

Hop = tuple[float, float]  # latency in seconds, bytes/s

# GT/s per lane and coding, as published: PCI Express Base Specification 1.0 … 7.0.
PCIE = {
    1: (Fraction(5, 2), Fraction(8, 10)),
    2: (Fraction(5), Fraction(8, 10)),
    3: (Fraction(8), Fraction(128, 130)),
    4: (Fraction(16), Fraction(128, 130)),
    5: (Fraction(32), Fraction(128, 130)),
    6: (Fraction(64), Fraction(242, 256)),
    7: (Fraction(128), Fraction(242, 256)),
}
# Links of a GPU, GB/s of one link in one direction: P100, V100, A100, H100, B200.
NVLINK = {1: (4, 20), 2: (6, 25), 3: (12, 25), 4: (18, 25), 5: (18, 50)}

# Latencies, rates; fast and slow hops in several orders.
PATHS: list[tuple[str, list[Hop]]] = [
    ("one hop", [(2e-6, 25e9)]),
    ("two equal hops", [(1e-6, 10e9)] * 2),
    ("fast, slow, fast", [(1e-6, 50e9), (5e-6, 12.5e9), (1e-6, 50e9)]),
    ("slow first", [(3e-6, 5e9), (1e-6, 20e9), (2e-6, 40e9)]),
    ("slow last", [(1e-6, 40e9), (2e-6, 20e9), (3e-6, 5e9)]),
    ("a long flight in the middle", [(1e-6, 20e9), (400e-6, 20e9), (1e-6, 20e9)]),
]


def pcie_cases(generations: Sequence[int]) -> list[Case]:
    """Every width of these generations."""
    cases = []
    for generation in generations:
        transfers, coding = PCIE[generation]
        for lanes in (1, 2, 4, 8, 16):
            raw = float(lanes * transfers * 10**9 / 8)
            right = float(lanes * transfers * 10**9 * coding / 8)
            suspects: Suspects = [
                (raw, "the coding is left out: not every bit on the wire carries data"),
                (right * 8, "these are bits/s: a byte has 8"),
                (right / 1e9, "the unit is GB/s, expected bytes/s"),
                (right * 2, "both directions are counted, expected one"),
                (raw * 0.8, "8b/10b ended with generation 2"),
                (raw * 128 / 130, "128b/130b belongs to generations 3 to 5"),
                (raw * 242 / 256, "FLIT (242/256) begins with generation 6"),
                (right / lanes, "one lane is counted, not all"),
            ]
            cases.append(_number_case(
                f"generation {generation} x{lanes}",
                {"generation": generation, "lanes": lanes}, right, "bytes/s", suspects,
            ))  # fmt: skip
    return cases


def nvlink_cases(some: bool) -> list[Case]:
    """Full sets, or some of the links."""
    cases = []
    for generation, (full, rate) in NVLINK.items():
        for links in sorted({1, 2, full - 1, full}) if some else [None]:
            right = (links or full) * rate * 1e9
            suspects: Suspects = [
                (2 * right, "both directions are counted, as in advertisements, expected one"),
                (right / 1e9, "the unit is GB/s, expected bytes/s"),
                (full * rate * 1e9, "`links` is ignored"),
                (rate * 1e9, "one link is counted"),
                (right * 8, "these are bits/s: a byte has 8"),
            ]
            arguments = {"generation": generation} | ({} if links is None else {"links": links})
            label = f"generation {generation}, {'all' if links is None else links} links"
            cases.append(_number_case(label, arguments, right, "bytes/s", suspects))
    return cases


def _number_case(
    label: str,
    arguments: dict[str, Any],
    right: float,
    unit: str,
    suspects: Suspects,
    traits: frozenset[str] = frozenset(),
    operations: int = 16,
) -> Case:
    def judge(returned: Any) -> None:
        expect_number(returned, right, unit, suspects, operations=operations)

    return Case(label, arguments, judge, traits=traits)


def simulated_path(nbytes: int, hops: Sequence[Hop], chunk: int | None) -> float:
    """Seconds, chunk after chunk and hop after hop."""
    sizes = [nbytes]
    if chunk is not None and nbytes:
        sizes = [min(chunk, nbytes - begin) for begin in range(0, nbytes, chunk)]
    free = [0.0] * len(hops)
    last = 0.0
    for size in sizes:
        now = 0.0
        for number, (latency, bandwidth) in enumerate(hops):
            free[number] = max(now, free[number]) + size / bandwidth
            now = free[number] + latency
        last = now
    return last


def path_case(label: str, nbytes: int, hops: Sequence[Hop], chunk: int | None) -> Case:
    """One call of path_time."""
    right = simulated_path(nbytes, hops, chunk)
    chunks = 1 if not chunk else max(1, -(-nbytes // chunk))
    slowest = min((rate for _, rate in hops), default=1.0)
    flights = sum(latency for latency, _ in hops)
    padded = simulated_path(chunks * (chunk or 0), hops, chunk) if chunk else right
    occupied = simulated_path(nbytes, [(0.0, rate) for _, rate in hops], chunk) + chunks * flights
    suspects: Suspects = [
        (flights + nbytes / slowest, "the hops overlap completely: only the slowest one counts"),
        (right - flights, "the latencies are left out"),
        (
            right - flights + max((latency for latency, _ in hops), default=0.0),
            "every hop's latency counts, not the longest alone",
        ),
        (simulated_path(nbytes, hops, None), "`chunk_bytes` is ignored"),
        (padded, "the last chunk is shorter than the others"),
        (occupied, "the latencies are paid for every chunk, as if a flight occupied the hop"),
    ]
    shares = {
        "empty": nbytes == 0 and bool(hops),
        "no hops": not hops,
        "rest": chunk is not None and 0 < chunk < nbytes and nbytes % chunk != 0,
        "larger chunk": chunk is not None and chunk > nbytes > 0,
        "slow first": label.startswith("slow first"),
        "slow last": label.startswith("slow last"),
    }
    arguments: dict[str, Any] = {
        "nbytes": nbytes,
        "hops": [
            {"given": "Link", "latency": latency, "bandwidth": rate} for latency, rate in hops
        ],
    }
    if chunk is not None:
        arguments["chunk_bytes"] = chunk
    suspects = [(value, why) for value, why in suspects if value != right]
    traits = frozenset(name for name, holds in shares.items() if holds)
    where = f"{label}, {nbytes} bytes" + (f" in chunks of {chunk}" if chunk else "")
    # Each of chunks × hops additions may round once, on either side.
    operations = 8 * (chunks + 1) * (len(hops) + 1)
    return _number_case(where, arguments, right, "s", suspects, traits, operations)


TRANSPORTS: dict[str, tuple[float, float, int, float, float, int]] = {
    "kernel TCP": (30e-6, 12.5e9, 2, 10e9, 0.5e-6, 1500),
    "TCP with jumbo frames": (28e-6, 3e9, 4, 8e9, 0.75e-6, 9000),
    "iWARP": (12e-6, 12.5e9, 0, 10e9, 0.0, 1500),
    "RoCE": (7e-6, 12.5e9, 0, 10e9, 0.0, 4096),
    "InfiniBand NDR": (1.5e-6, 50e9, 0, 20e9, 0.0, 4096),
    "zero copy through the kernel": (20e-6, 12.5e9, 0, 10e9, 0.4e-6, 1500),
    "kernel bypass with a bounce buffer": (3e-6, 12.5e9, 1, 10e9, 0.0, 4096),
}


def message_case(name: str, nbytes: int, field: str) -> Case:
    """One call of message_time, of which `field` ("seconds" or "cpu_seconds") is judged."""
    latency, bandwidth, copies, copy_rate, packet_cpu, mtu = TRANSPORTS[name]
    packets = max(1, (nbytes + mtu - 1) // mtu)
    copying = copies * nbytes / copy_rate
    cpu = copying + packets * packet_cpu
    wire = latency + nbytes / bandwidth
    wrong_cpu = [
        (copying + max(1, nbytes // mtu) * packet_cpu, "the last, shorter packet is not counted"),
        (copying + nbytes / mtu * packet_cpu, "there are no fractions of a packet: round up"),
        (copying + -(-nbytes // mtu) * packet_cpu, "an empty message still is one packet"),
        (copying + packet_cpu, "the CPU works for every packet, not once for the message"),
        (packets * packet_cpu + nbytes / copy_rate, "`host_copies` says how often all is copied"),
        (copying, "what the CPU does for each packet is left out"),
        (packets * packet_cpu, "the copies are left out"),
        (2 * cpu, "the transport's numbers already count both hosts"),
    ]
    right, suspects = cpu, wrong_cpu
    if field == "seconds":
        right = wire + cpu
        suspects = [(wire + value, why) for value, why in wrong_cpu]
        suspects += [
            (wire, "the CPUs' work is left out"),
            (right - latency, "the latency is left out"),
            (latency + max(nbytes / bandwidth, cpu), "nothing overlaps in this model"),
        ]
    suspects = [(value, why) for value, why in suspects if value != right]

    def judge(returned: Any) -> None:
        if not isinstance(returned, dict) or set(returned) != {"seconds", "cpu_seconds"}:
            raise CheckFailed(
                f"returned {shown(returned)}, expected a MessageTime(seconds, cpu_seconds)",
                cause="both numbers are asked for: given.MessageTime holds them",
            )
        unit = "s" if field == "seconds" else "CPU s"
        expect_number(returned[field], right, unit, suspects, what=f"{field}: ", operations=32)

    keys = ("latency", "bandwidth", "host_copies", "copy_bandwidth", "packet_cpu_seconds", "mtu")
    transport = dict(zip(keys, TRANSPORTS[name], strict=True)) | {"given": "Transport"}
    traits = frozenset({"empty"} if nbytes == 0 else ())
    arguments = {"nbytes": nbytes, "transport": transport}
    return Case(f"{nbytes} bytes over {name}", arguments, judge, traits=traits)
