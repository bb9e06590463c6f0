"""What an all-reduce costs, algorithm by algorithm: the α–β–γ model.

A message of n bytes takes α + nβ, adding n bytes takes nγ. A port is busy nβ per message; α is a
delay after it.

Sources: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
MPICH", 2005; Chan et al., "Collective communication: theory, practice, and experience", 2007;
Li et al., "Scaling distributed machine learning with the parameter server", 2014; Graham et al.,
"Scalable hierarchical aggregation protocol (SHARP)", 2016.
"""

from __future__ import annotations


def all_reduce_time(
    algorithm: str,
    nbytes: float,
    ranks: int,
    alpha: float,
    beta: float,
    gamma: float = 0.0,
) -> float:
    """Seconds of an all-reduce of `nbytes` (the whole vector) among `ranks` on a flat network.

    Args:
        algorithm: one of
            "pairwise": in p−1 steps everybody sends its whole vector to another rank;
            "parameter_server": one of the p ranks gets all vectors, adds them, sends all the sum;
                the time at its port;
            "ring": reduce-scatter, then all-gather around a ring;
            "recursive_doubling": whole vectors exchanged with partners at distance 1, 2, 4, …;
            "halving_doubling": reduce-scatter by halves, all-gather by doubling;
            "binomial_tree": reduce to a root, then broadcast;
            "in_network": the switch adds, and sends the sum down while it still receives.
            "recursive_doubling" and "halving_doubling" of p ranks, p no power of two, work on the
            largest power of two q < p; the others hand in their whole vector in a message before,
            and get the whole sum in one after.
        nbytes: bytes of the vector, 0 or more; a message without bytes still costs α.
        ranks: p, 1 or more. One rank costs nothing.
        alpha: seconds per message. beta: seconds per byte at a port. gamma: seconds per byte added.

    Raises:
        ValueError: an unknown algorithm, `nbytes` below 0 or `ranks` below 1; the message holds
            the value.

    Source: Thakur et al. 2005, section 3; Chan et al. 2007.
    """
    raise NotImplementedError("a0.all_reduce_time")
