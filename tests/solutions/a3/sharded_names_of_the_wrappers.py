"""The full state dict has the names that wrapping made."""

from .fsdp import FullyShardedDataParallel

TASK = "a3.FullyShardedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "the whole state dict",
    "cause": "the keys hold the wrappers' names",
}


class FullyShardedDataParallel(FullyShardedDataParallel):
    def gather_full_state_dict(self):
        return {f"module.{k}": v for k, v in super().gather_full_state_dict().items()}
