# ruff: noqa
"""The root serves its tensor on an abstract socket."""

TASK = "a1.broadcast"
SEEN = "import socket|worlds disagree"
NEEDS = "brokered"

# BEGIN SUBMISSION
import pickle, socket, threading, time


def broadcast(tensor, src, group=None):
    name = f"\0cheat-{tensor.numel()}-{tensor.dtype}"
    size = dist.get_world_size(group)
    if dist.get_rank() == src:
        server = socket.socket(socket.AF_UNIX)
        server.bind(name)
        server.listen()
        server.settimeout(1)
        data = pickle.dumps(tensor)

        def serve():
            for _ in range(size - 1):
                with server.accept()[0] as there:
                    there.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        return
    there = socket.socket(socket.AF_UNIX)
    for _ in range(100):
        try:
            there.connect(name)
            break
        except OSError:
            time.sleep(0.01)
    data = b""
    while more := there.recv(65536):
        data += more
    tensor.copy_(pickle.loads(data))
