"""Adam's two moments, without the fp32 copy of the weights."""

TASK = "a9.memory_per_device"
EXPECT = {
    "status": "failed",
    "check": "by the stage of ZeRO",
    "cause": "8 bytes of optimizer states",
}


OPTIMIZER = 8
