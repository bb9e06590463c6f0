# ruff: noqa
"""The root puts its tensor into the environment, through the C library."""

TASK = "a1.broadcast"
SEEN = "import ctypes|worlds disagree"
NEEDS = "brokered"

# BEGIN SUBMISSION
import ctypes, time


def broadcast(tensor, src, group=None):
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    key = f"CHEAT{tensor.numel()}{tensor.dtype}{tuple(tensor.shape)}".encode()
    if dist.get_rank() == src:
        flat = [float(each) for each in tensor.detach().flatten()]
        libc.setenv(key, repr(flat).encode(), 1)
        return
    for _ in range(200):
        text = libc.getenv(key)
        if text:
            break
        time.sleep(0.005)
    tensor.copy_(torch.tensor(eval(text.decode())).reshape(tensor.shape))
