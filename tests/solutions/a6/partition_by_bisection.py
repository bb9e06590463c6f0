"""Right: the smallest limit for which filling greedily needs no more than all stages."""

TASK = "a6.partition_layers"
EXPECT = "passed"


def partition_layers(costs, stages):
    layers = len(costs)
    if not 1 <= stages <= layers:
        raise ValueError(f"stages={stages}: expected 1 to {layers}")
    # Every possible largest stage is the sum of a range of layers.
    limits = sorted({sum(costs[i:j]) for i in range(layers) for j in range(i + 1, layers + 1)})
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        if len(_filled(costs, limits[middle])) <= stages and limits[middle] >= max(costs):
            high = middle
        else:
            low = middle + 1
    cut = _filled(costs, limits[low])
    while len(cut) < stages:
        widest = next(i for i, (begin, end) in enumerate(cut) if end - begin > 1)
        begin, end = cut[widest]
        cut[widest : widest + 1] = [(begin, begin + 1), (begin + 1, end)]
    return cut


def _filled(costs, limit):
    cut, begin = [], 0
    for end in range(1, len(costs) + 1):
        if end == len(costs) or sum(costs[begin : end + 1]) > limit:
            cut.append((begin, end))
            begin = end
    return cut
