# ruff: noqa: F821 (names of the reference)
"""Right: dictionaries of sets instead of a table of bits."""

TASK = "a0.best_ring"
EXPECT = "passed"


def best_ring(topology):
    from functools import cache

    first, *others = sorted(int(gpu[3:]) for gpu in topology.gpus)
    if len(others) < 2:
        return [first, *others]
    speed = {
        (int(a[3:]), int(b[3:])): _nearness(kind)
        for (a, b), kind in topology.links.items()
        if a != b and a.startswith("GPU") and b.startswith("GPU")
    }
    everyone = sum(1 << number for number in others)
    for slowest in sorted(set(speed.values()), reverse=True):

        @cache
        def rest(at, left):
            ways = []
            for step in others if left else [first]:
                if (left and not left >> step & 1) or speed[at, step] < slowest:
                    continue
                tail = rest(step, left & ~(1 << step)) if left else (0, ())
                if tail is not None:
                    cost = tail[0] + (speed[at, step] == slowest)
                    ways.append((cost, (step, *tail[1])))
            return min(ways, default=None)

        found = rest(first, everyone)
        if found is not None:
            return [first, *found[1][:-1]]
