"""Fills each stage until it has its average share."""

TASK = "a6.partition_layers"
EXPECT = {
    "status": "failed",
    "check": "makes the largest stage",
    "cause": "filled one after the other",
}


def partition_layers(costs, stages):
    layers = len(costs)
    if not 1 <= stages <= layers:
        raise ValueError(f"stages={stages} for {layers} layers")
    share, begin, cut = sum(costs) / stages, 0, []
    for stage in range(stages - 1):
        end, total = begin + 1, costs[begin]
        while end < layers - (stages - 1 - stage) and total + costs[end] <= share:
            total += costs[end]
            end += 1
        cut.append((begin, end))
        begin = end
    return [*cut, (begin, layers)]
