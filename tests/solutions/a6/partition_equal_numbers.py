"""Stages of equal numbers of layers, whatever they cost."""

TASK = "a6.partition_layers"
EXPECT = {
    "status": "failed",
    "check": "makes the largest stage",
    "cause": "equal numbers of layers",
}


def partition_layers(costs, stages):
    layers = len(costs)
    if not 1 <= stages <= layers:
        raise ValueError(f"stages={stages} for {layers} layers")
    bounds = [layers * stage // stages for stage in range(stages + 1)]
    return [(bounds[i], bounds[i + 1]) for i in range(stages)]
