"""NumPy's scalars as operands: float64 and complex128, Python numbers by their class, are weak; others keep their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes

S, C = np.sqrt(3), np.complex128(1 + 2j)
DTYPES = ["float16", "bfloat16", "float32", "float64"]
BINARY = {
    "x + s": lambda x, s: x + s, "s + x": lambda x, s: s + x, "x - s": lambda x, s: x - s, "s - x": lambda x, s: s - x,
    "x * s": lambda x, s: x * s, "s * x": lambda x, s: s * x, "x / s": lambda x, s: x / s, "s / x": lambda x, s: s / x,
    "x ** s": lambda x, s: x**s, "s ** x": lambda x, s: s**x, "x // s": lambda x, s: x // s, "s // x": lambda x, s: s // x,
    "x % s": lambda x, s: x % s, "s % x": lambda x, s: s % x, "dot": lambda x, s: nnp.dot(x, s),
    "where": lambda x, s: nnp.where(x > 1, s, x), "minimum": lambda x, s: nnp.minimum(x, s), "clip": lambda x, s: nnp.clip(x, s, s),
    "maximum": lambda x, s: nnp.maximum(s, x), "set": lambda x, s: x.at[0].set(s), "add": lambda x, s: x.at[0].add(s),
    "full_like": lambda x, s: nnp.full_like(x, s), "pad": lambda x, s: nnp.pad(x, 1, constant_values=s),
    "hypot": lambda x, s: nnp.hypot(x, s), "fmod": lambda x, s: nnp.fmod(s, x),
    "sum": lambda x, s: nnp.sum(x, initial=s), "nan_to_num": lambda x, s: nnp.nan_to_num(x, nan=s),
}  # fmt: skip


RUNS = {
    "eagerly": lambda f, x, s: [f(x, s) for _ in range(5)][-1],  # the last ones are answered from memory
    "captured": lambda f, x, s: nnc.compile(lambda x: f(x, s))(x),
    "as an argument": lambda f, x, s: nnc.compile(f)(x, s),
    "mapped": lambda f, x, s: nnc.vmap(f, in_axes=(0, None))(x[None], s)[0],
    "differentiated": lambda f, x, s: nnc.jvp(lambda x: f(x, s), (x,), (x,))[0],
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("function", BINARY.values(), ids=BINARY)
def test_a_float64_scalar_takes_the_dtype_of_the_array_that_it_meets(function, run):
    for dtype in DTYPES:
        x = nnp.asarray([1.0, 2.0, 3.0], dtype)
        found, expected = run(function, x, S), run(function, x, float(S))
        assert (found.dtype, expected.dtype) == (x.dtype, x.dtype)
        np.testing.assert_allclose(
            np.asarray(found, float), np.asarray(expected, float), rtol=2e-2 if x.itemsize < 4 else 1e-6
        )


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_complex128_scalar_makes_float32_complex64(run):
    for function in (lambda x, s: x * s, lambda x, s: s + x, lambda x, s: nnp.where(True, x, s)):
        assert run(function, nnp.ones(3), C).dtype == nnp.complex64
        assert run(function, nnp.ones(3, "complex64"), S).dtype == nnp.complex64
        assert run(function, nnp.ones(3, "float64"), C).dtype == nnp.complex128


def test_the_number_is_as_exact_as_the_array_allows():
    x = nnp.ones(1, "float64")
    assert (x * S).item() == S and nnc.compile(lambda x, s: x * s)(x, S).item() == S
    assert (nnp.ones(1) * S).item() == np.float32(S)
    assert np.isposinf((nnp.ones(1) * np.float64(1e300)).item())


def test_integers_and_bools_that_meet_a_float64_scalar_have_64_bits_until_they_meet_floats():
    for x in (nnp.arange(3), nnp.arange(3, dtype="int8"), nnp.arange(3) > 1):
        for found in (
            x * S, S * x, nnp.where(x > 0, x * S + 0.5, S), nnc.compile(lambda x: x * S)(x), nnp.add(x, S) + 0.5,
            nnc.vmap(lambda x: x * S)(x), [x * S for _ in range(5)][-1],
        ):  # fmt: skip
            assert found.dtype == nnp.float64 and found.weak
            assert (nnp.ones(3) * found).dtype == (found - nnp.ones(3)).dtype == nnp.float32
        assert (x * S).tolist() == (np.asarray(x) * S).tolist()
        assert (x * 0.5).dtype == nnp.float32 and not (x * 0.5).weak


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "int64", "uint8", "bool", "complex64"])
def test_other_scalars_of_numpy_keep_their_dtype_as_arrays_do(dtype):
    for x in (nnp.ones(3, "float32"), nnp.ones(3, "float16"), nnp.ones(3, "int32"), nnp.ones(3, "int8")):
        scalar = np.dtype(dtype).type(1)
        expected = nnp.promote_types(x.dtype, dtype)
        assert {(x * scalar).dtype, (scalar * x).dtype, nnc.compile(lambda x, s: x * s)(x, scalar).dtype} == {expected}


def test_arrays_keep_their_dtype_also_those_of_one_element():
    x = nnp.ones(3)
    for wide in (
        np.asarray(2.0),
        np.ones(1),
        nnp.asarray(np.float64(2)),
        nnp.asarray(2.0, "float64"),
        nnp.asarray([S]),
    ):
        for _ in range(5):
            assert (x * wide).dtype == (wide * x).dtype == nnp.float64
        assert nnc.compile(lambda x, s: x * s)(x, wide).dtype == nnp.float64


def test_numbers_by_themselves_keep_64_bits_and_stay_weak():
    root = nnp.sqrt(np.float64(3))
    assert root.dtype == nnp.float64 and root.item() == S
    assert (nnp.ones(3) * root).dtype == nnp.float32
    assert nnp.power(np.float64(2), 3).weak and (root**2).weak and nnp.where(True, S, 1.0).item() == S
    assert nnc.grad(lambda x: x**3)(np.float64(0.1)).item() == 3 * np.float64(0.1) ** 2
    assert nnc.compile(lambda s: s * 2)(S).item() == 2 * S
    total, _ = nnc.scan(lambda c, x: (c + x, None), np.float64(0), nnp.ones(3))
    assert total.dtype == nnp.float32


def test_new_arrays_of_a_float64_scalar_are_float32():
    zero, one = np.float64(0), np.float64(1)
    for x in (nnp.full(3, S), nnp.full((), S), nnp.arange(zero, one, np.float64(0.25)), nnp.linspace(zero, one, 3)):
        assert x.dtype == nnp.float32
    for x in (nnp.full(3, S, "float64"), nnp.linspace(zero, one, 3, dtype="float64"), nnp.asarray(S, "float64")):
        assert x.dtype == nnp.float64
    assert nnp.full(3, S, "float64")[0].item() == S
    assert nnp.full(3, C).dtype == nnp.complex64


def test_a_program_is_traced_once_for_all_float64_scalars():
    f: Any = nnc.compile(lambda x, tree: x * tree["s"])
    x = nnp.ones(2)
    for k in range(6):
        assert f(x, {"s": np.float64(k)}).tolist() == [k, k]
    assert f.cache_info().misses == 1
    assert f(x, {"s": np.ones(())}).dtype == nnp.float64


def test_a_scaled_network_stays_in_float32():
    def loss(w: Any, x: Any) -> Any:
        h = nnc.nn.gelu(x @ w / np.sqrt(w.shape[0]))
        return nnp.mean((h - np.mean([1.0, 2.0])) ** 2) * np.float64(0.5)

    w, x = nnp.ones((3, 3)), nnp.ones((2, 3))
    value, gradient = nnc.compile(nnc.value_and_grad(loss))(w, x)
    assert value.dtype == gradient.dtype == nnp.float32
    optimizer = nnc.optim.adam(np.float64(1e-3))
    updates, _ = optimizer.update(gradient, optimizer.init(w), w)
    assert updates.dtype == nnc.optim.apply_updates(w, updates).dtype == nnp.float32


def test_results_of_weak_operands_are_weak_as_numbers_or_as_float64_scalars_and_strong_ones_make_them_strong():
    whole, numbers, wide = nnp.stack([1, 2]), nnp.stack([1.0, 2.0]), S * nnp.arange(2)
    cases = [
        (whole + whole, True), (whole * 3, True), (numbers * numbers, dtypes.NUMBER), (numbers + whole, dtypes.NUMBER),
        (wide + wide, True), (wide * numbers, True), (nnp.sin(wide), True), (nnp.maximum(whole, 2), True),
        (whole + nnp.arange(2), False), (numbers * nnp.ones(2), False), (wide + nnp.ones(2, "float64"), False),
        (numbers > whole, False), (whole * S, True), (nnp.arange(2) * S, True),
    ]  # fmt: skip
    assert [x.weak for x, _ in cases] == [weak for _, weak in cases]
