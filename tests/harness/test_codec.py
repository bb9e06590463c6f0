"""What goes through the codec comes back the same, and nothing else goes through."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.harness.codec import Given, decode, encode
from grader.harness.errors import EncodeError
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
