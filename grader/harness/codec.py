"""Values between processes: nested data as JSON, tensors as flat safetensors bytes.

Never pickle: to read a pickle is to run what its writer chose. What is written here
is a tree of JSON in which an object with one key that begins with ``$`` stands for
what JSON lacks (``$tuple``, ``$tensor``, …), beside the bytes of the storages.
Encoding looks at exact types only, and decoding builds only from the types below.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

import numpy as np
import torch

from grader.harness.errors import DecodeError, EncodeError
from grader.harness.layout import (
    DTYPE_NAME,
    DTYPES,
    MAX_NBYTES,
    StorageReader,
    StorageWriter,
    wholes,
)

MAX_DEPTH: Final = 64
MAX_NODES: Final = 1_000_000
MAX_CHARS: Final = 16 << 20
_MAX_HEX: Final = 4096
_JSON_INT: Final = 2**63

_NUMPY_SCALARS: Final = frozenset(np.dtype(name).type for name in "?bhilqBHILQefdFD")

BuildGiven = Callable[[str, dict[str, Any]], Any]


@dataclass(frozen=True)
class Given:
    """An instance of a given dataclass, as data: its full name and its fields."""

    name: str
    fields: dict[str, Any]


_Path = tuple["_Path", str] | None


class _Encoder:
    def __init__(self, name: str, given: Collection[type | str], max_nbytes: int) -> None:
        self.writer = StorageWriter()
        self._name = name
        self._given = {item if isinstance(item, str) else _full_name(item) for item in given}
        self._max_nbytes = max_nbytes
        self._nodes = 0
        self._chars = 0
        self._open: set[int] = set()

    def _where(self, path: _Path) -> str:
        keys: list[str] = []
        while path is not None:
            path, key = path
            keys.append(key)
        return self._name + "".join(reversed(keys))

    def fail(self, path: _Path, message: str) -> EncodeError:
        return EncodeError(f"{self._where(path)}: {message}")

    def encode(self, value: object, path: _Path, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self.fail(path, f"more than {MAX_NODES} values in one tree")
        kind = type(value)  # exact types only: a subclass could run code of its own
        if value is None or kind is bool:
            return value
        if kind is int:
            return self._int(value, path)  # type: ignore[arg-type]
        if kind is float:
            return _float(value)  # type: ignore[arg-type]
        if kind is str:
            return self._str(value, path)  # type: ignore[arg-type]
        if kind in (list, tuple, dict) or kind is Given or self._is_given(kind):
            return self._container(value, kind, path, depth)
        return self._leaf(value, kind, path)

    def _is_given(self, kind: type) -> bool:
        return bool(self._given) and _full_name(kind) in self._given

    def _int(self, value: int, path: _Path) -> Any:
        if -_JSON_INT <= value < _JSON_INT:
            return value
        if value.bit_length() > 4 * _MAX_HEX:
            raise self.fail(path, f"an int of {value.bit_length()} bits")
        return {"$int": hex(value)}

    def _str(self, value: str, path: _Path) -> str:
        self._chars += len(value)
        if self._chars > MAX_CHARS:
            raise self.fail(path, f"more than {MAX_CHARS} characters of text in one tree")
        return value

    def _container(self, value: Any, kind: type, path: _Path, depth: int) -> Any:
        if id(value) in self._open:
            raise self.fail(path, "a container that holds itself")
        if depth >= MAX_DEPTH:
            raise self.fail(path, f"nested deeper than {MAX_DEPTH}")
        self._open.add(id(value))
        try:
            if kind is dict:
                return self._dict(value, path, depth)
            if kind is list or kind is tuple:
                items = [
                    self.encode(item, (path, f"[{index}]"), depth + 1)
                    for index, item in enumerate(value)
                ]
                return items if kind is list else {"$tuple": items}
            return self._dataclass(value, kind, path, depth)
        finally:
            self._open.discard(id(value))

    def _dict(self, value: dict[Any, Any], path: _Path, depth: int) -> Any:
        plain = True
        items: list[tuple[Any, Any]] = []
        for key, item in value.items():
            if type(key) is str:
                self._str(key, path)
                plain = plain and not key.startswith("$")
            elif type(key) is int:
                self._int(key, path)
                plain = False
            else:
                raise self.fail(path, f"a key of type {type(key).__name__}; str or int expected")
            shown = repr(key) if len(str(key)) <= 60 else repr(str(key)[:60] + "…")
            items.append((key, self.encode(item, (path, f"[{shown}]"), depth + 1)))
        if plain:
            return dict(items)
        # JSON has text keys only, and a key with "$" must not look like one of our marks.
        return {"$dict": [[hex(k) if type(k) is int else k, type(k) is int, v] for k, v in items]}

    def _dataclass(self, value: Any, kind: type, path: _Path, depth: int) -> Any:
        if kind is Given:
            name, members = value.name, value.fields
        elif is_dataclass(kind):
            name = _full_name(kind)
            members = {field.name: getattr(value, field.name) for field in fields(kind)}
        else:
            raise self.fail(path, f"{_full_name(kind)} is registered but is no dataclass")
        encoded = {
            self._str(key, path): self.encode(item, (path, f".{key}"), depth + 1)
            for key, item in members.items()
        }
        return {"$given": self._str(name, path), "fields": encoded}

    def _leaf(self, value: Any, kind: type, path: _Path) -> Any:
        if kind is bytes:
            encoded: Any = {"$bytes": self.writer.add_bytes(value)}
        elif kind is torch.dtype:
            if value not in DTYPE_NAME:
                raise self.fail(path, f"the dtype {value} is not supported")
            encoded = {"$dtype": DTYPE_NAME[value]}
        elif kind is torch.Size:
            encoded = {"$size": list(value)}
        elif torch.Tensor in kind.__mro__:
            encoded = {"$tensor": self.writer.add(value, self._where(path))}
        elif kind is np.ndarray or kind in _NUMPY_SCALARS:
            tensor = self._from_numpy(value, path)
            encoded = {"$numpy": self.writer.add(tensor, self._where(path))}
            if kind is not np.ndarray:
                encoded["scalar"] = True
        else:
            raise self.fail(path, f"values of type {_full_name(kind)} cannot be sent")
        if self.writer.nbytes > self._max_nbytes:
            raise self.fail(path, f"the tree holds more than {self._max_nbytes} bytes of data")
        return encoded

    def _from_numpy(self, value: Any, path: _Path) -> torch.Tensor:
        array = np.asarray(value)
        if array.dtype.type not in _NUMPY_SCALARS:
            raise self.fail(path, f"numpy arrays of dtype {array.dtype} are not supported")
        odd = any(s < 0 or s % array.itemsize for s in array.strides)
        if odd or not array.flags.writeable or not array.dtype.isnative:
            array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
        return torch.from_numpy(array)


def _float(value: float) -> Any:
    if math.isfinite(value):
        return value
    return {"$float": struct.pack(">d", value).hex()}  # keeps the payload of a NaN


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def encode(
    value: object,
    *,
    given: Collection[type | str] = (),
    name: str = "value",
    max_nbytes: int = MAX_NBYTES,
) -> tuple[dict[str, Any], bytes]:
    """Turn a value into a JSON-able tree and the safetensors bytes of its data.

    Takes dict (str and int keys), list, tuple, str, int, float, bool, None, bytes,
    torch.dtype, torch.Size, numpy scalars and arrays, and dense tensors on cpu or meta with
    their layout; tensors are detached. Instances of the dataclasses in ``given`` (types, or
    their full names) travel as name and fields. Numpy arrays keep their strides, but two arrays
    over one buffer come back as two.

    Raises:
        EncodeError: anything else; the message begins with where it lies, e.g.
            ``outputs[2]['x']`` when ``name="outputs"``.
    """
    encoder = _Encoder(name, given, max_nbytes)
    tree = encoder.encode(value, None, 0)
    storages, blob = encoder.writer.finish()
    return {"value": tree, "storages": storages}, blob


class _Decoder:
    def __init__(self, reader: StorageReader, build: BuildGiven) -> None:
        self._reader = reader
        self._build = build
        self._nodes = 0

    def decode(self, node: object, where: str, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > 2 * MAX_NODES:  # a tuple counts twice
            raise DecodeError(f"{where[:200]}: more than {MAX_NODES} values in one tree")
        if node is None or type(node) in (bool, int, float, str):
            return node
        if depth > MAX_DEPTH:
            raise DecodeError(f"{where[:200]}: nested deeper than {MAX_DEPTH}")
        if type(node) is list:
            return [self.decode(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(node)]
        if type(node) is not dict:
            raise DecodeError(f"{where}: not JSON data: {type(node).__name__}")
        if len(node) <= 2:
            mark = next((key for key in node if type(key) is str and key.startswith("$")), None)
            if mark is not None:
                return self._marked(mark, node, where, depth)
        decoded: dict[str, Any] = {}
        for key, item in node.items():
            if type(key) is not str or key.startswith("$"):
                raise DecodeError(f"{where}: unexpected key {key!r:.80}")
            decoded[key] = self.decode(item, f"{where}[{key!r:.60}]", depth + 1)
        return decoded

    def _marked(self, mark: str, node: dict[str, Any], where: str, depth: int) -> Any:
        extra = {"$given": {"fields"}, "$numpy": {"scalar"}}.get(mark, set())
        if set(node) - {mark} - extra:
            raise DecodeError(f"{where}: unexpected keys beside {mark!r:.80}")
        content = node[mark]
        match mark:
            case "$int":
                return _hex_int(content, where)
            case "$float":
                return _hex_float(content, where)
            case "$tuple" if type(content) is list:
                return tuple(self.decode(content, where, depth))
            case "$dict":
                return self._pairs(content, where, depth)
            case "$bytes":
                return self._reader.bytes_at(content, where)
            case "$dtype" if type(content) is str and content in DTYPES:
                return DTYPES[content]
            case "$size":
                return torch.Size(wholes(content, where))
            case "$tensor":
                return self._reader.tensor(content, where)
            case "$numpy":
                return self._numpy(content, node.get("scalar", False), where)
            case "$given" if type(content) is str and type(node.get("fields")) is dict:
                members = {
                    key: self.decode(item, f"{where}.{key:.60}", depth + 1)
                    for key, item in node["fields"].items()
                }
                return self._build(content, members)
        raise DecodeError(f"{where}: {mark!r:.80} with content that does not fit it")

    def _pairs(self, content: object, where: str, depth: int) -> dict[str | int, Any]:
        if type(content) is not list:
            raise DecodeError(f"{where}: expected a list of keys and values")
        decoded: dict[str | int, Any] = {}
        for item in content:
            if type(item) is not list or len(item) != 3 or type(item[0]) is not str:
                raise DecodeError(f"{where}: expected [key, is int, value]")
            key = _hex_int(item[0], where) if item[1] is True else item[0]
            decoded[key] = self.decode(item[2], f"{where}[{key!r:.60}]", depth + 1)
        return decoded

    def _numpy(self, content: object, scalar: object, where: str) -> Any:
        tensor = self._reader.tensor(content, where)
        try:
            array = tensor.numpy()
        except (RuntimeError, TypeError) as error:
            raise DecodeError(f"{where}: not an array that numpy knows: {error}") from error
        if scalar is False:
            return array
        if array.ndim or scalar is not True:
            raise DecodeError(f"{where}: a scalar of shape {array.shape}")
        return array[()]


def _hex_int(content: object, where: str) -> int:
    if type(content) is not str or len(content) > _MAX_HEX + 3:
        raise DecodeError(f"{where}: expected an int in hexadecimal")
    try:
        return int(content, 16)
    except ValueError as error:
        raise DecodeError(f"{where}: expected an int in hexadecimal") from error


def _hex_float(content: object, where: str) -> float:
    try:
        if type(content) is str and len(content) == 16:
            return float(struct.unpack(">d", bytes.fromhex(content))[0])
    except ValueError as error:
        raise DecodeError(f"{where}: expected the bits of a float") from error
    raise DecodeError(f"{where}: expected the bits of a float")


def decode(
    tree: object,
    blob: bytes,
    *,
    build: BuildGiven | None = None,
    name: str = "value",
    max_nbytes: int = MAX_NBYTES,
) -> Any:
    """The value that ``encode`` wrote. Everything is checked; no code of the sender runs.

    ``build(full_name, fields)`` makes given instances; without it they come as ``Given``.

    Raises:
        DecodeError: malformed data, a view outside its storage, or more than ``max_nbytes``.
    """
    if type(tree) is not dict or set(tree) != {"value", "storages"}:
        raise DecodeError(f"{name}: expected an object with a value and storages")
    reader = StorageReader(tree["storages"], blob, max_nbytes)
    return _Decoder(reader, build or Given).decode(tree["value"], name, 0)
