"""Programs of an array and a Python number near the limits of dtypes: every transform gives the eager result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import nnc
import nnc.numpy as nnp
from nnc.errors import NncError

Fun = Callable[..., Any]
DTYPES = (
    "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "bool",
    "complex64",
)  # fmt: skip
POWERS = [sign * 2**n for n in (7, 8, 15, 16, 31, 32, 53, 63) for sign in (1, -1)]
LIMITS = [0, 1, -1, 2, 3, 7, 100, *(power + d for power in POWERS for d in (-1, 0, 1))]
INTEGERS = st.sampled_from([n for n in LIMITS if -(2**63) <= n < 2**64])
FLOATS = st.sampled_from(
    [0.0, -0.0, 0.1, -2.5, 1e-8, 65504.0, 1e5, 3e38, 1e39, 1e-46, 1e300, float("inf"), float("nan")]
)
COMPLEX = st.sampled_from([0.1j, 1 + 2j, complex(0, 1e300)])
NUMBERS = st.one_of(INTEGERS, INTEGERS, FLOATS, FLOATS, st.booleans(), COMPLEX)

OPERATIONS: dict[str, Fun] = {
    "add": lambda x, a: x + a, "subtract": lambda x, a: a - x, "multiply": lambda x, a: x * a, "divide": lambda x, a: x / a,
    "remainder": lambda x, a: x % a, "and": lambda x, a: x & a, "power": lambda x, a: x**a, "base": lambda x, a: a**x,
    "less": lambda x, a: x < a, "equal": lambda x, a: a == x, "at least": lambda x, a: a >= x,
    "maximum": lambda x, a: nnp.maximum(x, a),
    "where": lambda x, a: nnp.where(x == x, a, x), "clip": lambda x, a: nnp.clip(x, a, None), "set": lambda x, a: x.at[1].set(a),
    "add at": lambda x, a: x.at[0].add(a), "full_like": lambda x, a: nnp.full_like(x, a), "append": lambda x, a: nnp.append(x, a),
    "pad": lambda x, a: nnp.pad(x, 1, constant_values=a), "searchsorted": lambda x, a: nnp.searchsorted(nnp.sort(x), a),
    "isin": lambda x, a: nnp.isin(x, a), "twice": lambda x, a: x + a * 2, "formula": lambda x, a: x * nnp.exp(-nnp.abs(a)),
    "negative": lambda x, a: x - (-a), "stack": lambda x, a: x[:2] * nnp.stack([a, a]),
    "mean": lambda x, a: x * nnp.mean(nnp.stack([a, a])),
    "number": lambda x, a: a, "function": lambda x, a: nnp.sqrt(nnp.abs(a)), "full": lambda x, a: nnp.full(2, a),
    "nan_to_num": lambda x, a: nnp.nan_to_num(x, nan=a), "sum": lambda x, a: nnp.sum(x, initial=a),
    "round": lambda x, a: x * nnp.round(a),
}  # fmt: skip


def carried(f: Fun, x: Any, a: Any) -> Any:
    """The operation in a scan that carries the number."""
    return nnc.scan(lambda a, x: (a, f(x, a)), a, x[None])[1]


MODES: dict[str, Fun] = {
    "compiled": lambda f, x, a: nnc.compile(f)(x, a),
    "mapped": lambda f, x, a: nnc.vmap(f, (0, None))(x[None], a),
    "in a branch": lambda f, x, a: nnc.cond(True, f, f, x, a),
    "in a compiled branch": lambda f, x, a: nnc.compile(lambda p: nnc.cond(p, f, f, x, a))(True),
    "carried by a scan": carried,
    "carried by a loop": lambda f, x, a: nnc.fori_loop(0, 2, lambda i, c: (c[0], f(x, c[0])), (a, f(x, a)))[1],
    "in a checkpoint": lambda f, x, a: nnc.vmap(lambda x: nnc.checkpoint(f)(x, a))(x[None]),
    "staged": lambda f, x, a: nnc.compile(lambda x, a: nnc.compile(f)(x, a))(x, a),
}
STACKED = ("mapped", "carried by a scan", "in a checkpoint")  # a leading axis of size 1


def outcome(run: Fun) -> Any:
    """The result of a call; of an error whether it is an overflow."""
    try:
        return run()
    except NncError as error:
        return "overflow" if isinstance(error, OverflowError) else "error"


def check_close(found: Any, want: Any) -> None:
    """Holds dtypes and values against each other; floats up to their rounding."""
    assert found.dtype == want.dtype and found.shape == want.shape, (found, want)
    a, b = np.asarray(found), np.asarray(want)
    if not nnp.issubdtype(want.dtype, nnp.inexact):
        assert a.tolist() == b.tolist()
        return
    wide = complex if nnp.issubdtype(want.dtype, nnp.complexfloating) else np.float64
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=8 * float(nnp.finfo(want.dtype).eps))


@pytest.mark.filterwarnings("ignore")
@settings(deadline=None)
@given(st.sampled_from(sorted(OPERATIONS)), st.sampled_from(DTYPES), NUMBERS, st.sampled_from(sorted(MODES)))
def test_a_number_means_the_same_in_every_transform(name: str, dtype: str, number: Any, mode: str) -> None:
    if (name == "negative" and isinstance(number, bool)) or (name in ("negative", "twice") and abs(number) >= 2**62):
        return  # Python's integers have no end, and its bools have a sign
    f, x = OPERATIONS[name], nnp.asarray([1, 0, 3]).astype(dtype)
    want, found = outcome(lambda: f(x, number)), outcome(lambda: MODES[mode](f, x, number))
    if isinstance(want, str) or isinstance(found, str):
        refused = isinstance(want, str) and isinstance(
            found, str
        )  # a power by a number below 0 is told by its exponent
        assert want == found or (refused and name == "power"), (want, found)
        return
    first = found[0] if mode in STACKED else found
    if name == "number":
        assert (found.weak and first.tolist() == number) or number != number
    else:
        check_close(first, want)
