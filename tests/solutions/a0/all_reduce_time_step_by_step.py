# ruff: noqa: F821 (names of the reference)
"""Right: adds up the steps."""

TASK = "a0.all_reduce_time"
EXPECT = "passed"


def all_reduce_time(algorithm, nbytes, ranks, alpha, beta, gamma=0.0):
    if algorithm not in _ALGORITHMS or nbytes < 0 or ranks < 1:
        raise ValueError(f"{algorithm!r}, {nbytes} bytes, {ranks} ranks")
    p, full = ranks, (1.0, 1.0)
    q = 1 << (p.bit_length() - 1)
    if p == 1:
        steps = []
    elif algorithm == "pairwise":
        steps = [full] * (p - 1)
    elif algorithm == "parameter_server":
        steps = [(p - 1.0, p - 1.0), (p - 1.0, 0.0)]
    elif algorithm == "ring":
        steps = [(1 / p, 1 / p)] * (p - 1) + [(1 / p, 0.0)] * (p - 1)
    elif algorithm == "binomial_tree":
        steps = [full, (1.0, 0.0)] * (p - 1).bit_length()
    elif algorithm == "in_network":
        steps = [(0.5, 0.0), (0.5, 0.0)]
    else:
        steps, size = [], q
        while size > 1:
            share = 1.0 if algorithm == "recursive_doubling" else size / 2 / q
            steps.append((share, share))
            if algorithm == "halving_doubling":
                steps.append((share, 0.0))
            size //= 2
        if q != p:
            steps = [full, *steps, (1.0, 0.0)]
    return sum(alpha + nbytes * (wire * beta + adds * gamma) for wire, adds in steps)
