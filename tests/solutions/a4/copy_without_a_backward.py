"""The identity, both ways."""

TASK = "a4.copy_to_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "nothing was summed",
}


def copy_to_tensor_parallel(tensor, group=None):
    return tensor.clone()
