"""Tensor layout: tensors to flat byte storages and back.

safetensors carries values only. What a worker must also see again is where a tensor
lies: its stride, its offset, and which other tensors share its storage. So each
*storage* travels as flat bytes, and each tensor as a description of a view of one.
Sizes of storages are bytes; strides and offsets are elements, as in PyTorch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import safetensors
import safetensors.numpy
import torch

from grader.harness.errors import DecodeError, EncodeError

MAX_DIMS: Final = 64
MAX_NBYTES: Final = 4 << 30
_MAX_INT: Final = 2**62

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# fmt: off
_DTYPE_NAMES: Final = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2",
)
# fmt: on
DTYPES: Final[dict[str, torch.dtype]] = {
    name: getattr(torch, name) for name in _DTYPE_NAMES if hasattr(torch, name)
}
DTYPE_NAME: Final[dict[torch.dtype, str]] = {dtype: name for name, dtype in DTYPES.items()}


@dataclass
class _Storage:
    """A storage and the range of its bytes that some tensor can see."""

    storage: torch.UntypedStorage
    device: str
    nbytes: int
    start: int
    end: int


def _extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Number of elements from a view's first to its last, both included; 0 when it is empty."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


class StorageWriter:
    """Collects the storages under the tensors of one value."""

    def __init__(self) -> None:
        self._storages: dict[int, _Storage] = {}
        self._index: dict[int, int] = {}
        self._raw: dict[int, bytes] = {}
        self.nbytes = 0

    def add_bytes(self, data: bytes) -> int:
        """Take raw bytes; returns the index that stands for them."""
        index = len(self._storages) + len(self._raw)
        self._raw[index] = data
        self.nbytes += len(data)
        return index

    def add(self, tensor: torch.Tensor, where: str) -> dict[str, Any]:
        """Describe ``tensor`` as a view of a storage of this value.

        Raises:
            EncodeError: the tensor is sparse, quantized, nested, a subclass, on another
                device than cpu or meta, or its storage has been freed.
        """
        if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
            raise EncodeError(
                f"{where}: a plain torch.Tensor was expected, got the subclass "
                f"{type(tensor).__qualname__}"
            )
        try:
            return self._describe(tensor, where)
        except RuntimeError as error:  # e.g. a tensor that a functorch transform wraps
            raise EncodeError(f"{where}: this tensor has no storage of its own: {error}") from error

    def _describe(self, tensor: torch.Tensor, where: str) -> dict[str, Any]:
        parameter = type(tensor) is torch.nn.Parameter
        requires_grad = tensor.requires_grad
        tensor = tensor.detach()
        if tensor.layout != torch.strided or tensor.is_nested:
            raise EncodeError(
                f"{where}: a dense (strided) tensor was expected, got layout {tensor.layout}"
            )
        if tensor.dtype not in DTYPE_NAME:
            raise EncodeError(f"{where}: tensors of dtype {tensor.dtype} are not supported")
        device = tensor.device.type
        if device not in ("cpu", "meta"):
            raise EncodeError(
                f"{where}: a tensor on cpu or meta was expected, got one on {tensor.device}; "
                f"copy it with .cpu()"
            )
        shape, stride, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        if len(shape) > MAX_DIMS:
            raise EncodeError(f"{where}: {len(shape)} dimensions, more than {MAX_DIMS}")
        start = offset * tensor.itemsize
        end = start + _extent(shape, stride) * tensor.itemsize
        described: dict[str, Any] = {
            "dtype": DTYPE_NAME[tensor.dtype],
            "shape": list(shape),
            "stride": list(stride),
            "offset": offset,
            "storage": self._storage_of(tensor, device, start, end, where),
        }
        flags = {
            "grad": requires_grad,
            "parameter": parameter,
            "conj": tensor.is_conj(),
            "neg": tensor.is_neg(),
        }
        described.update({name: True for name, on in flags.items() if on})
        return described

    def _storage_of(
        self, tensor: torch.Tensor, device: str, start: int, end: int, where: str
    ) -> int:
        storage = tensor.untyped_storage()
        if end > start and end > storage.nbytes():
            raise EncodeError(
                f"{where}: its storage holds {storage.nbytes()} bytes where the view needs {end}; "
                f"the storage was resized or freed"
            )
        key = storage._cdata  # the address of the storage itself; kept alive in _storages
        if key not in self._index:
            index = len(self._storages) + len(self._raw)
            self._index[key] = index
            self._storages[index] = _Storage(storage, device, storage.nbytes(), 0, 0)
        index = self._index[key]
        known = self._storages[index]
        if end > start:
            before = known.end - known.start
            fresh = known.end == known.start
            known.start = start if fresh else min(known.start, start)
            known.end = end if fresh else max(known.end, end)
            if device == "cpu":
                self.nbytes += known.end - known.start - before
        return index

    def finish(self) -> tuple[list[dict[str, Any]], bytes]:
        """Descriptions of the storages, by index, and the safetensors bytes of their data.

        Only bytes that a tensor of the value can see are written: the rest of a storage comes
        back as zeros, so that a small view of a large buffer is small here too.
        """
        described: list[dict[str, Any]] = []
        arrays: dict[str, _Bytes] = {}
        for index in range(len(self._storages) + len(self._raw)):
            if index in self._raw:
                data = self._raw[index]
                described.append({"device": "raw", "nbytes": len(data), "start": 0})
                arrays[str(index)] = np.frombuffer(data, dtype=np.uint8)
                continue
            known = self._storages[index]
            described.append({"device": known.device, "nbytes": known.nbytes, "start": known.start})
            if known.device == "cpu":
                arrays[str(index)] = _memory(known.storage, known.start, known.end)
        return described, safetensors.numpy.save(dict(arrays)) if arrays else b""


def _memory(storage: torch.UntypedStorage, start: int, end: int) -> _Bytes:
    """Bytes of a storage, by address: no dispatch mode and no default device interferes.

    The array does not keep the storage alive.
    """
    if end == start:
        return np.empty(0, dtype=np.uint8)
    place = (ctypes.c_uint8 * (end - start)).from_address(storage.data_ptr() + start)
    return np.frombuffer(memoryview(place), dtype=np.uint8)


def _new_storage(nbytes: int, device: str) -> torch.UntypedStorage:
    storage: torch.UntypedStorage = torch.UntypedStorage(nbytes, device=device)  # type: ignore[no-untyped-call]
    return storage


def whole(value: object, what: str, low: int = 0, high: int = _MAX_INT) -> int:
    """``value`` if it is an int (no bool) in ``[low, high]``, else DecodeError."""
    if type(value) is not int or not low <= value <= high:
        raise DecodeError(f"{what}: expected an int from {low} to {high}, got {value!r:.80}")
    return value


def wholes(value: object, what: str) -> tuple[int, ...]:
    """A tuple of at most MAX_DIMS ints >= 0, else DecodeError."""
    if type(value) is not list or len(value) > MAX_DIMS:
        raise DecodeError(f"{what}: expected a list of at most {MAX_DIMS} ints")
    return tuple(whole(item, what) for item in value)


class StorageReader:
    """Rebuilds storages and the views of them; trusts nothing in what it reads."""

    def __init__(self, described: object, blob: bytes, max_nbytes: int = MAX_NBYTES) -> None:
        """Read the storages.

        Raises:
            DecodeError: malformed, more than ``max_nbytes`` in all, or data left over.
        """
        self._max_nbytes = max_nbytes
        if type(described) is not list:
            raise DecodeError("storages: expected a list")
        try:
            data = safetensors.numpy.load(blob) if blob else {}
        except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
            raise DecodeError(f"storages: not safetensors bytes: {error}") from error
        total = 0
        self._entries: list[torch.UntypedStorage | bytes] = []
        for index, entry in enumerate(described):
            what = f"storages[{index}]"
            if type(entry) is not dict or entry.get("device") not in ("cpu", "meta", "raw"):
                raise DecodeError(f"{what}: expected a storage on cpu or meta")
            nbytes = whole(entry.get("nbytes"), what)
            if entry["device"] == "meta":
                self._entries.append(_new_storage(nbytes, "meta"))
                continue
            total += nbytes
            if total > max_nbytes:
                raise DecodeError(f"{what}: storages of more than {max_nbytes} bytes in all")
            part = data.pop(str(index), None)
            if part is None or part.dtype != np.uint8 or part.ndim != 1:
                raise DecodeError(f"{what}: its bytes are missing")
            if entry["device"] == "raw":
                self._entries.append(part.tobytes())
            else:
                self._entries.append(_fill(entry, part, nbytes, what))
        if data:
            raise DecodeError(f"storages: data that nothing describes: {sorted(data)[:3]}")

    def bytes_at(self, index: object, where: str) -> bytes:
        """The raw bytes at ``index``."""
        entry = self._entry(index, where)
        if not isinstance(entry, bytes):
            raise DecodeError(f"{where}: storage {index} belongs to a tensor")
        return entry

    def _entry(self, index: object, where: str) -> torch.UntypedStorage | bytes:
        return self._entries[whole(index, f"{where} storage", 0, len(self._entries) - 1)]

    def tensor(self, described: object, where: str) -> torch.Tensor:
        """The tensor that ``described`` tells of, over its storage.

        Raises:
            DecodeError: malformed, outside its storage, or too large.
        """
        if type(described) is not dict:
            raise DecodeError(f"{where}: expected the description of a tensor")
        storage = self._entry(described.get("storage"), where)
        name = described.get("dtype")
        if type(name) is not str or name not in DTYPES:
            raise DecodeError(f"{where}: unknown dtype {name!r:.80}")
        if isinstance(storage, bytes):
            raise DecodeError(f"{where}: its storage is not one of a tensor")
        dtype, on_meta = DTYPES[name], storage.device.type == "meta"
        shape = wholes(described.get("shape"), f"{where} shape")
        stride = wholes(described.get("stride"), f"{where} stride")
        offset = whole(described.get("offset"), f"{where} offset")
        if len(shape) != len(stride):
            raise DecodeError(f"{where}: {len(shape)} sizes but {len(stride)} strides")
        extent, numel = _extent(shape, stride), 1
        for size in shape:
            numel *= size
        if (offset + extent) * dtype.itemsize > (storage.nbytes() if extent else _MAX_INT):
            raise DecodeError(
                f"{where}: shape {shape}, stride {stride} and offset {offset} reach beyond its "
                f"storage of {storage.nbytes()} bytes"
            )
        # An expanded view may be far larger than its storage: whoever computes on it pays.
        if numel * dtype.itemsize > (_MAX_INT if on_meta else self._max_nbytes):
            raise DecodeError(f"{where}: a tensor of {numel} elements is too large")
        tensor = torch.empty(0, dtype=dtype, device=storage.device)
        with torch.no_grad():
            tensor.set_(storage, offset, shape, stride)
        return _flagged(tensor, described, numel, where)


def _fill(
    entry: Mapping[str, Any], part: np.ndarray[Any, Any], nbytes: int, what: str
) -> torch.UntypedStorage:
    start = whole(entry.get("start"), what)
    if start + part.nbytes > nbytes:
        raise DecodeError(f"{what}: {part.nbytes} bytes from {start} in a storage of {nbytes}")
    storage = _new_storage(nbytes, "cpu")
    target = _memory(storage, 0, nbytes)
    target[:start] = 0
    target[start : start + part.nbytes] = part
    target[start + part.nbytes :] = 0
    return storage


def _flagged(
    tensor: torch.Tensor, described: Mapping[str, Any], numel: int, where: str
) -> torch.Tensor:
    """Set what is said of a tensor beside its layout, as far as its dtype allows."""
    dtype = tensor.dtype
    differentiable = dtype.is_floating_point or dtype.is_complex
    grad, parameter = described.get("grad", False), described.get("parameter", False)
    conj, neg = described.get("conj", False), described.get("neg", False)
    if any(type(flag) is not bool for flag in (grad, parameter, conj, neg)):
        raise DecodeError(f"{where}: grad, parameter, conj and neg must be booleans")
    if (grad and not differentiable) or (conj and not dtype.is_complex):
        raise DecodeError(f"{where}: a tensor of {dtype} cannot require a gradient or be conjugate")
    if neg and dtype == torch.bool:
        raise DecodeError(f"{where}: a tensor of bool cannot be negated")
    # Any other byte makes a boolean that is neither True nor False, which compares as it pleases.
    on_cpu = dtype == torch.bool and tensor.device.type == "cpu" and numel > 0
    if on_cpu and int(tensor.view(torch.uint8).max()) > 1:
        raise DecodeError(f"{where}: a bool tensor holds bytes other than 0 and 1")
    if conj:
        tensor = tensor.conj()
    if neg:
        tensor = torch._neg_view(tensor)
    if parameter:
        return torch.nn.Parameter(tensor, requires_grad=grad)
    return tensor.requires_grad_(grad) if grad else tensor
