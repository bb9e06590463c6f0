"""Gradients as if they were kept in fp32."""

TASK = "a9.memory_per_device"
EXPECT = {
    "status": "failed",
    "check": "by the stage of ZeRO",
    "cause": "gradients are counted with 4 bytes",
}


GRADIENT = 4
