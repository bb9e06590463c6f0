"""What the codec refuses: values that it cannot send, and bytes that nobody honest sent."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.harness.codec import MAX_DEPTH, MAX_NODES, decode, encode
from grader.harness.errors import DecodeError, EncodeError

QUICK = settings(max_examples=40, deadline=None)


def round_trip(value: Any, **options: Any) -> Any:
    tree, blob = encode(value, **options)
    return decode(json.loads(json.dumps(tree, allow_nan=False)), blob)


class Text(str):
    __slots__ = ()


class Pair(NamedTuple):
    x: int


class Disguised:
    ran = False

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        Disguised.ran = True
        return dict


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise AssertionError("foreign code ran")


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


def freed() -> torch.Tensor:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


REFUSED: dict[str, Callable[[], Any]] = {
    "str subclass": lambda: Text("x"),
    "named tuple": lambda: Pair(1),
    "dict subclass": lambda: OrderedDict(a=1),
    "disguised object": Disguised,
    "set": lambda: {1},
    "function": lambda: print,
    "numpy objects": lambda: np.array([object()]),
    "numpy text": lambda: np.array(["x"]),
    "masked array": lambda: np.ma.masked_array([1]),
    "tensor subclass": lambda: torch.ones(1).as_subclass(Lazy),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    "freed storage": freed,
    "tuple key": lambda: {(1, 2): 3},
    "bool key": lambda: {True: 1},
    "cyclic": cyclic,
    "too deep": lambda: deep(MAX_DEPTH + 1),
    "deeper than python": lambda: deep(100_000),
    "huge int": lambda: 1 << 100_000,
    "other dtype": lambda: torch.qint8,
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_sent_is_named_by_its_path(kind: str) -> None:
    value = REFUSED[kind]()
    with pytest.raises(EncodeError, match=r"^outputs\[2\]\['x'\]"):
        encode([0, 1, {"x": value}], name="outputs")
    assert not Disguised.ran


def test_wrapped_tensor_of_a_transform_is_refused() -> None:
    def leak(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(EncodeError, match=r"^value: "):
            encode(x)
        return x

    torch.func.vmap(leak)(torch.ones(3))


def test_gigantic_trees_are_refused() -> None:
    shared: Any = [0, 1]
    for _ in range(40):  # small in memory, 2**40 values when written out
        shared = [shared, shared]
    with pytest.raises(EncodeError, match=f"more than {MAX_NODES} values"):
        encode(shared)
    with pytest.raises(EncodeError, match="more than 100 bytes of data"):
        encode(torch.zeros(101, dtype=torch.uint8), max_nbytes=100)
    with pytest.raises(EncodeError, match="characters"):
        encode("x" * (17 << 20))


def test_depth_at_the_limit_round_trips() -> None:
    assert round_trip(deep(MAX_DEPTH)) == deep(MAX_DEPTH)


def tensor_tree() -> dict[str, Any]:
    return copy.deepcopy(encode({"t": torch.arange(6.0).reshape(2, 3)})[0])


BLOB = encode({"t": torch.arange(6.0).reshape(2, 3)})[1]


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "float99"},
        {"dtype": "load"},
        {"dtype": 7},
        {"dtype": "float64"},
        {"shape": [2, 4]},
        {"shape": [2]},
        {"shape": [-1, 3]},
        {"shape": [2, 3.0]},
        {"shape": [2, True]},
        {"shape": "23"},
        {"shape": [1] * 65, "stride": [1] * 65},
        {"shape": [1 << 40, 3], "stride": [0, 1]},
        {"shape": [1 << 61, 1 << 61], "stride": [0, 0]},
        {"stride": [3, 2]},
        {"stride": [-3, 1]},
        {"stride": [1 << 63, 1]},
        {"offset": 1},
        {"offset": -1},
        {"offset": 1 << 70},
        {"storage": 1},
        {"storage": -1},
        {"storage": "0"},
        {"storage": None},
        {"grad": 1},
        {"conj": True},
        {"dtype": "int32", "grad": True},
    ],
)
def test_malformed_tensor_is_refused(change: dict[str, Any]) -> None:
    tree = tensor_tree()
    tree["value"]["t"]["$tensor"].update(change)
    with pytest.raises(DecodeError, match=r"^value\['t'\]"):
        decode(tree, BLOB)


@pytest.mark.parametrize(
    "change",
    [
        {"nbytes": 20},
        {"nbytes": 1 << 50},
        {"nbytes": -1},
        {"start": 1},
        {"start": -1},
        {"start": None},
        {"device": "cuda"},
        {"device": "meta"},
        {"device": "raw"},
    ],
)
def test_malformed_storage_is_refused(change: dict[str, Any]) -> None:
    tree = tensor_tree()
    tree["storages"][0].update(change)
    with pytest.raises(DecodeError):
        decode(tree, BLOB)


@pytest.mark.parametrize("blob", [b"", b"x", BLOB[:-1], BLOB + b"x", b"\xff" * 100])
def test_malformed_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(tensor_tree(), blob)


@pytest.mark.parametrize(
    "node",
    [
        {"$pickle": "x"},
        {"$tensor": 1},
        {"$tuple": 3},
        {"$dict": [["a", False]]},
        {"$dict": [[1, True, 2]]},
        {"$int": "zz"},
        {"$int": "f" * 10_000},
        {"$float": "00"},
        {"$float": "z" * 16},
        {"$bytes": 0},
        {"$dtype": "Tensor"},
        {"$size": [-1]},
        {"$given": 1, "fields": {}},
        {"$given": "x"},
        {"$tuple": [], "more": 1},
        {"a": 1, "b": 2, "$c": 3},
        deep(MAX_DEPTH + 2),
        [0] * (2 * MAX_NODES),
    ],
    ids=lambda node: str(node)[:30],
)
def test_malformed_nodes_are_refused(node: Any) -> None:
    with pytest.raises(DecodeError):
        decode({"value": node, "storages": []}, b"")


@pytest.mark.parametrize("tree", [None, [], {}, {"value": 1}, {"value": 1, "storages": {}}])
def test_malformed_trees_are_refused(tree: Any) -> None:
    with pytest.raises(DecodeError):
        decode(tree, b"")


def test_booleans_that_are_neither_are_refused() -> None:
    odd = torch.tensor([0, 1, 2], dtype=torch.uint8).view(torch.bool)
    tree, blob = encode(odd)
    with pytest.raises(DecodeError, match="other than 0 and 1"):
        decode(tree, blob)


# fmt: off
JSON_KEYS = [
    "$tensor", "$numpy", "$tuple", "$dict", "$size", "$given", "fields", "shape", "stride",
    "dtype", "offset", "storage", "nbytes", "start", "device", "value", "storages",
]
# fmt: on

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(JSON_KEYS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@QUICK
@given(json_values, st.lists(json_values, max_size=2), st.binary(max_size=60))
def test_any_json_is_decoded_or_refused(value: Any, storages: Any, blob: bytes) -> None:
    for content in (blob, BLOB):
        try:
            decode({"value": value, "storages": storages}, content)
        except DecodeError as error:
            assert str(error)
