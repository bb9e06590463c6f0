"""What goes through the codec comes back the same, and nothing else goes through."""

from __future__ import annotations

import copy
import json
import math
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.harness.codec import MAX_DEPTH, MAX_NODES, Given, decode, encode
from grader.harness.errors import DecodeError, EncodeError
from grader.harness.frames import FrameError, FrameReader, pack
from grader.harness.layout import DTYPES

QUICK = settings(max_examples=40, deadline=None)


def round_trip(value: Any, **options: Any) -> Any:
    tree, blob = encode(value, **options)
    return decode(json.loads(json.dumps(tree, allow_nan=False)), blob)


def bits(tensor: torch.Tensor) -> bytes:
    """The elements, in order, as they lie in memory."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().flatten()
    storage = flat.untyped_storage()
    raw = torch.empty(0, dtype=torch.uint8).set_(storage)  # type: ignore[call-overload]
    start = flat.storage_offset() * flat.itemsize
    return bytes(raw[start : start + flat.numel() * flat.itemsize].tolist())


def assert_same(came: torch.Tensor, sent: torch.Tensor) -> None:
    assert type(came) is type(sent)
    for name in ("dtype", "device", "shape", "requires_grad", "layout"):
        assert getattr(came, name) == getattr(sent, name), name
    assert came.stride() == sent.stride()
    assert came.storage_offset() == sent.storage_offset()
    assert came.untyped_storage().nbytes() == sent.untyped_storage().nbytes()
    assert (came.is_conj(), came.is_neg()) == (sent.is_conj(), sent.is_neg())
    if sent.device.type == "cpu":
        assert bits(came) == bits(sent)


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary(max_size=40)
    | st.sampled_from(list(DTYPES.values()))
    | st.lists(st.integers(0, 9), max_size=4).map(torch.Size),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$tensor", "$dict", "$", "a"]), inner, max_size=3)
    ),
    max_leaves=25,
)


@QUICK
@given(plain_values)
def test_plain_values_round_trip(value: Any) -> None:
    came = round_trip(value)
    assert came == value
    assert repr(came) == repr(value)  # tells 1 from True and 1.0, and a tuple from a list


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, math.nan, 5e-324])
def test_floats_keep_their_bits(value: float) -> None:
    odd_nan = struct.unpack(">d", bytes.fromhex("7ff8000000abcdef"))[0]
    for sent in (value, odd_nan):
        assert struct.pack(">d", round_trip(sent)) == struct.pack(">d", sent)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Any view of any bytes: permuted, sliced, expanded, with an offset."""
    dtype = draw(st.sampled_from(list(DTYPES.values())))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    offset = draw(st.integers(0, 5))
    stride = [draw(st.integers(0, 6)) for _ in shape]
    extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    slack = draw(st.integers(0, 3))
    nbytes = (offset + extent + slack) * dtype.itemsize
    high = 1 if dtype == torch.bool else 255
    data = draw(st.binary(min_size=nbytes, max_size=nbytes))
    raw = torch.tensor([byte % (high + 1) for byte in data], dtype=torch.uint8)
    tensor = torch.empty(0, dtype=dtype)
    tensor.set_(raw.untyped_storage(), offset, shape, stride)  # type: ignore[call-overload]
    if (dtype.is_floating_point or dtype.is_complex) and draw(st.booleans()):
        tensor.requires_grad_()
    return tensor


@QUICK
@given(tensors())
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_any_layout_round_trips_bit_for_bit(tensor: torch.Tensor) -> None:
    assert_same(round_trip(tensor), tensor)


@QUICK
@given(st.lists(tensors(), min_size=1, max_size=4), st.data())
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_which_tensors_share_a_storage_is_kept(several: list[torch.Tensor], data: Any) -> None:
    sent = [tensor.detach() for tensor in several]
    for _ in range(2):
        view = data.draw(st.sampled_from(sent))
        if view.dim():
            skipped = data.draw(st.integers(0, view.shape[0]))
            view = view.narrow(0, skipped, data.draw(st.integers(0, view.shape[0] - skipped)))
        sent.append(view)
    sent = data.draw(st.permutations(sent))
    came = round_trip(sent)

    def sharing(group: list[torch.Tensor]) -> list[list[bool]]:
        keys = [tensor.untyped_storage()._cdata for tensor in group]
        return [[one == other for other in keys] for one in keys]

    assert sharing(came) == sharing(sent)
    for one, other in zip(came, sent, strict=True):
        assert_same(one, other)


def test_overlapping_views_stay_views() -> None:
    base = torch.arange(10.0)
    whole, wide, part = round_trip((base, base[:1].expand(4, 5), base[3:9:2]))
    assert torch.equal(whole, base)
    whole.fill_(7)
    assert part.tolist() == [7.0] * 3
    assert wide.stride() == (0, 0) and wide[2, 3] == 7


def test_bytes_that_no_tensor_sees_are_not_sent() -> None:
    secret = torch.full((1 << 20,), 42, dtype=torch.uint8)
    tree, blob = encode(secret[100:104])
    assert len(blob) < 1000
    came = decode(tree, blob)
    assert_same(came, secret[100:104])
    assert came.as_strided((104,), (1,), 0).sum() == 4 * 42


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_payloads_of_nan_survive(dtype: torch.dtype) -> None:
    raw = torch.arange(256, dtype=torch.uint8).repeat(8)
    tensor = raw.view(dtype)
    assert bits(round_trip(tensor)) == bits(tensor)


def test_meta_tensors_have_layout_and_no_data() -> None:
    base = torch.empty(1 << 40, 4, dtype=torch.bfloat16, device="meta")
    tree, blob = encode([base, base.t()[1:]])
    assert blob == b""
    first, second = decode(tree, blob)
    assert_same(first, base)
    assert_same(second, base.t()[1:])
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata


def test_conjugate_and_negated_views_stay_lazy() -> None:
    value = torch.tensor([1 + 2j, 3 - 4j])
    for sent in (value.conj(), value.conj().imag):
        came = round_trip(sent)
        assert_same(came, sent)
        assert torch.equal(came, sent)


def test_results_of_autograd_are_detached() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    product, parameter = round_trip((weight * 2, weight))
    assert product.grad_fn is None and product.requires_grad
    assert type(parameter) is torch.nn.Parameter
    assert not round_trip(torch.nn.Parameter(torch.ones(1), requires_grad=False)).requires_grad


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float16", "complex64"])
def test_numpy_arrays_and_scalars(name: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(name)
    for sent in (array, array.T, array[::2, 1:], array[::-1], np.array(array[1, 1]), array[:0]):
        came = round_trip(sent)
        assert type(came) is np.ndarray and came.dtype == sent.dtype
        assert np.array_equal(came, sent)
    assert round_trip(array.T).strides == array.T.strides
    scalar = round_trip(array[1, 1])
    assert type(scalar) is type(array[1, 1]) and scalar == array[1, 1]


@dataclass(frozen=True)
class Link:
    bandwidth: float
    ends: tuple[int, int]


def test_registered_dataclasses_travel_as_data() -> None:
    link = Link(2.5, (0, 1))
    name = f"{Link.__module__}.Link"
    for registered in (Link, name):
        tree, blob = encode([link], given=[registered])
        assert decode(tree, blob) == [Given(name, {"bandwidth": 2.5, "ends": (0, 1)})]
        assert decode(tree, blob, build=lambda _, members: Link(**members)) == [link]
    assert round_trip(Given(name, {"x": 1})) == Given(name, {"x": 1})
    with pytest.raises(EncodeError, match=r"^value\[0\]: values of type .*Link cannot be sent"):
        encode([link])


# -- what is refused


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


# -- frames


@QUICK
@given(st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=50)), max_size=4), st.data())
def test_frames_are_cut_wherever_the_stream_breaks(
    sent: list[tuple[str, bytes]], data: Any
) -> None:
    stream = b"".join(b"".join(pack({"text": text}, blob)) for text, blob in sent)
    reader, came = FrameReader(1000), []
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        came += reader.feed(stream[:count])
        stream = stream[count:]
    assert [(message["text"], blob) for message, blob in came] == sent


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\r\n",
        b"TPf1" + (10).to_bytes(4, "big") + (1 << 60).to_bytes(8, "big"),
        b"TPf1" + (2).to_bytes(4, "big") + bytes(8) + b"[]",
        b"TPf1" + (3).to_bytes(4, "big") + bytes(8) + b"NaN",
        b"TPf1" + (100_000).to_bytes(4, "big") + bytes(8) + b"[" * 100_000,
        b"TPf1" + (9_000).to_bytes(4, "big") + bytes(8) + b"9" * 9_000,
        b"TPf1" + (2).to_bytes(4, "big") + bytes(8) + b"\xff\xff",
    ],
)
def test_what_is_no_frame_is_refused(stream: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader(1 << 20).feed(stream)
