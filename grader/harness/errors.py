"""What the codec raises; apart from it, so that they can be named without importing torch."""


class EncodeError(TypeError):
    """A value that cannot travel between processes; the message names where it lies."""


class DecodeError(ValueError):
    """Bytes that are not a well-formed value; the message names where and why."""
