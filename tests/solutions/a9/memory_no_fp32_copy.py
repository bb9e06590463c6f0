"""Adam's two moments, without the fp32 copy of the weights."""

TASK = "a9.memory_per_device"
EXPECT = {"status": "failed", "check": "by the stage of ZeRO", "cause": "12 bytes"}


OPTIMIZER = 8
