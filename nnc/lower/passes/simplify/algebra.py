"""Rules of `simplify` on numbers, choices and conversions; each holds bit for bit, for NaN, infinities and both zeros, too.

A rule is not here if its sides can differ: x + 0.0 is 0.0 for x = -0.0, x * 0 is NaN for infinite x, x - x likewise.
Nor is one that LLVM applies within kernels and that makes no node needless, such as |-x| = |x|.
"""

# ruff: noqa: D103  (a rule is an equation, which says more than words)

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from nnc.base import dtypes
from nnc.base.casting import saturates
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.collective import INDEX, pvary
from nnc.commands.shape import broadcast_to
from nnc.graph import RewriteRule, Sample, TensorSpec, rewrite_rule, sample
from nnc.graph.rules import Value


def number(x: Value, value: Any) -> Value:
    """`value` everywhere, in the form that `fold` gives such a tensor."""
    constant = np.asarray(value, x.dtype)
    return broadcast_to(constant, shape=x.shape, axes=()) if x.shape else constant


def spec(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    """Returns the spec of a sample's variable."""
    return TensorSpec(shape, dtypes.as_dtype(dtype))


def _specs(*names: str) -> list[TensorSpec]:
    """Returns a matrix and a 0-d tensor of each dtype."""
    return [spec(shape, name) for name in names for shape in ((2, 3), ())]


REALS = ("float32", "bfloat16", "float64", "int32", "uint8")
FLOATS, INTEGERS = REALS[:3], REALS[3:]
ANY = ("float32", "bfloat16", "complex64", "int32", "bool")


def _samples(*names: str, variables: int = 1, forms: int = 1, **params: Any) -> list[Sample]:
    """Samples of each dtype. The first ones show all `forms` of the left side: two, if it has tensors of one number."""
    return [Sample((x,) * variables, params, form=i < forms) for i, x in enumerate(_specs(*names))]


def _choices(*names: str, variables: int) -> list[Sample]:
    """Samples whose first variable is a condition."""
    samples = _samples(*names, variables=variables)
    return [replace(x, specs=(x.specs[0].update(dtype=dtypes.bool_), *x.specs)) for x in samples]


def _is_real(x: Any, *others: Any) -> bool:
    return not dtypes.is_complex(x.dtype)


def _is_signed(x: Any, *others: Any) -> bool:
    return dtypes.is_float(x.dtype) or x.dtype in dtypes.SIGNED


def _is_integer(x: Any, *others: Any) -> bool:
    return dtypes.is_integer(x.dtype)


# -- arithmetic --------------------------------------------------------------------------------------------------------


@rewrite_rule(root=ew.neg, samples=_samples(*REALS, "complex64"))
def double_negation(x: Value) -> Any:
    return ew.neg(ew.neg(x)), x


@rewrite_rule(root=ew.add, samples=_samples(*REALS, "complex64", variables=2))
def add_negation(x: Value, y: Value) -> Any:
    return ew.add(x, ew.neg(y)), ew.sub(x, y)


@rewrite_rule(root=ew.add, samples=_samples(*REALS, "complex64", variables=2))
def add_to_negation(x: Value, y: Value) -> Any:
    return ew.add(ew.neg(x), y), ew.sub(y, x)


@rewrite_rule(root=ew.mul, when=_is_real, samples=_samples(*REALS, variables=2))
def product_of_negations(x: Value, y: Value) -> Any:
    return ew.mul(ew.neg(x), ew.neg(y)), ew.mul(x, y)


@rewrite_rule(root=ew.add, samples=_samples(*REALS, "complex64", forms=2))
def add_negative_zero(x: Value) -> Any:
    return ew.add(x, number(x, _neutral(x))), x


@rewrite_rule(root=ew.add, samples=_samples(*REALS, "complex64", forms=2))
def add_to_negative_zero(x: Value) -> Any:
    return ew.add(number(x, _neutral(x)), x), x


def _neutral(x: Value) -> Any:
    """Returns the number that leaves any other as it is when added: -0.0, in both parts of a complex number."""
    return complex(-0.0, -0.0) if dtypes.is_complex(x.dtype) else -0.0 if dtypes.is_float(x.dtype) else 0


@rewrite_rule(root=ew.sub, samples=_samples(*REALS, "complex64", forms=2))
def subtract_zero(x: Value) -> Any:
    return ew.sub(x, number(x, 0)), x


@rewrite_rule(root=ew.mul, when=_is_real, samples=_samples(*REALS, "bool", forms=2))
def times_one(x: Value) -> Any:
    return ew.mul(x, number(x, 1)), x


@rewrite_rule(root=ew.mul, when=_is_real, samples=_samples(*REALS, "bool", forms=2))
def one_times(x: Value) -> Any:
    return ew.mul(number(x, 1), x), x


@rewrite_rule(root=ew.mul, when=_is_signed, samples=_samples(*FLOATS, "int32", forms=2))
def times_minus_one(x: Value) -> Any:
    return ew.mul(x, number(x, -1)), ew.neg(x)


@rewrite_rule(root=ew.mul, when=_is_signed, samples=_samples(*FLOATS, "int32", forms=2))
def minus_one_times(x: Value) -> Any:
    return ew.mul(number(x, -1), x), ew.neg(x)


@rewrite_rule(root=ew.mul, when=_is_integer, samples=_samples(*INTEGERS, forms=2))
def times_zero(x: Value) -> Any:
    return ew.mul(x, number(x, 0)), constants.full_like(x, 0)


@rewrite_rule(root=ew.safe_mul, when=_is_real, samples=_samples(*REALS, forms=2))
def safe_times_one(x: Value) -> Any:
    return ew.safe_mul(x, number(x, 1)), x


@rewrite_rule(root=ew.safe_mul, when=_is_real, samples=_samples(*REALS, forms=2))
def one_safe_times(x: Value) -> Any:
    return ew.safe_mul(number(x, 1), x), x


@rewrite_rule(root=ew.div, when=_is_real, samples=_samples(*FLOATS, forms=2))
def divide_by_one(x: Value) -> Any:
    return ew.div(x, number(x, 1)), x


@rewrite_rule(root=ew.div, when=_is_real, samples=_samples(*FLOATS, forms=2))
def divide_one(x: Value) -> Any:
    return ew.div(number(x, 1), x), ew.reciprocal(x)


@rewrite_rule(root=ew.integer_pow, samples=_samples(*REALS, exponent=1), when=lambda x, exponent: exponent == 1)
def first_power(x: Value, *, exponent: int) -> Any:
    return ew.integer_pow(x, exponent=exponent), x


@rewrite_rule(
    root=ew.integer_pow, samples=_samples(*REALS, exponent=2), when=lambda x, exponent: exponent == 2 and _is_real(x)
)
def second_power(x: Value, *, exponent: int) -> Any:
    return ew.integer_pow(x, exponent=exponent), ew.square(x)


# -- choice, order, identity -------------------------------------------------------------------------------------------


@rewrite_rule(root=ew.select, samples=_choices(*ANY, variables=1))
def select_equal(condition: Value, x: Value) -> Any:
    return ew.select(condition, x, x), x


@rewrite_rule(root=ew.select, samples=_samples(*ANY, variables=2, forms=2))
def select_true(x: Value, y: Value) -> Any:
    return ew.select(number(spec(x.shape, "bool"), True), x, y), x


@rewrite_rule(root=ew.select, samples=_samples(*ANY, variables=2, forms=2))
def select_false(x: Value, y: Value) -> Any:
    return ew.select(number(spec(x.shape, "bool"), False), x, y), y


@rewrite_rule(root=ew.select, samples=_choices(*ANY, variables=2))
def select_by_negation(condition: Value, x: Value, y: Value) -> Any:
    return ew.select(ew.bitwise_not(condition), x, y), ew.select(condition, y, x)


@rewrite_rule(root=ew.maximum, samples=_samples(*REALS, "bool"))
def maximum_with_itself(x: Value) -> Any:
    return ew.maximum(x, x), x


@rewrite_rule(root=ew.minimum, samples=_samples(*REALS, "bool"))
def minimum_with_itself(x: Value) -> Any:
    return ew.minimum(x, x), x


@rewrite_rule(root=ew.stop_gradient, samples=_samples(*ANY))
def without_stop_gradient(x: Value) -> Any:
    return ew.stop_gradient(x), x


@rewrite_rule(root=ew.with_square, samples=_samples(*FLOATS, variables=2))
def without_square(x: Value, y: Value) -> Any:
    return ew.with_square(x, y), x


@rewrite_rule(root=ew.with_slope, samples=_samples(*FLOATS, variables=2))
def without_slope(x: Value, y: Value) -> Any:
    return ew.with_slope(x, y), x


@rewrite_rule(root=ew.copy, samples=_samples(*ANY))
def without_copy(x: Value) -> Any:
    return ew.copy(x), x


@rewrite_rule(root=pvary, samples=[sample(x, INDEX, size=3, axis_name="i", stride=2) for x in _specs(*ANY)])
def without_pvary(x: Value, index: Value, *, size: int, axis_name: str, stride: int) -> Any:
    return pvary(x, index, size=size, axis_name=axis_name, stride=stride), x


@rewrite_rule(
    root=ew.less,
    samples=[sample(shape=(4,), dtype=dtypes.int64, axis=0)],
    when=lambda shape, dtype, axis: dtypes.is_integer(dtypes.as_dtype(dtype)),
)
def negative_count(*, shape: tuple[int, ...], dtype: Any, axis: int) -> Any:
    count = constants.iota(shape=shape, dtype=dtype, axis=axis)
    return ew.less(count, number(count, 0)), number(spec(shape, "bool"), False)


# -- conversions -------------------------------------------------------------------------------------------------------


def is_lossless(a: dtypes.DType, b: dtypes.DType) -> bool:
    """Whether `b` holds every value of `a`."""
    if a == b or dtypes.is_bool(a):
        return True
    if dtypes.is_bool(b) or (dtypes.is_complex(a) and not dtypes.is_complex(b)):
        return False
    a_part, b_part = dtypes.real_dtype(a), dtypes.real_dtype(b)
    if dtypes.is_integer(a_part):
        low, high = _range(a_part)
        reach = _range(b_part) if dtypes.is_integer(b_part) else (-(2 ** _digits(b_part)), 2 ** _digits(b_part))
        return reach[0] <= low and high <= reach[1]
    return dtypes.is_float(b_part) and (a_part == b_part or a_part.itemsize < b_part.itemsize)


def _range(dtype: dtypes.DType) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _digits(dtype: dtypes.DType) -> int:
    return int(ml_dtypes.finfo(dtype).nmant) + 1  # type: ignore[no-untyped-call]


@rewrite_rule(
    root=ew.convert,
    samples=[sample(spec((2, 3), "float32"), dtype=dtypes.float32)],
    when=lambda x, dtype: x.dtype == dtypes.as_dtype(dtype),
)
def convert_to_itself(x: Value, *, dtype: Any) -> Any:
    return ew.convert(x, dtype=dtype), x


@rewrite_rule(
    root=ew.convert,
    samples=[
        sample(spec((2, 3), a), first=dtypes.as_dtype(b), second=dtypes.as_dtype(c))
        for a, b, c in (
            ("bfloat16", "float32", "bfloat16"), ("float32", "float64", "float32"), ("bool", "int32", "float32"),
            ("int8", "int64", "float32"), ("float16", "float32", "float64"), ("float32", "float64", "bool"),
            ("float16", "float32", "uint8"),
        )
    ],
    when=lambda x, first, second: is_lossless(x.dtype, first) and not _limits_after(x.dtype, first, second),
)  # fmt: skip
def convert_twice(x: Value, *, first: Any, second: Any) -> Any:
    """Integers that became floats are limited to the range of a narrower integer, where they themselves wrap around."""
    wide = ew.convert(x, dtype=first)
    return ew.convert(wide, dtype=second), x if x.dtype == second else ew.convert(x, dtype=second)


def _limits_after(dtype: dtypes.DType, first: Any, second: Any) -> bool:
    first, second = dtypes.as_dtype(first), dtypes.as_dtype(second)
    return dtypes.is_integer(dtype) and saturates(first, second) and not is_lossless(dtype, second)


ARITHMETIC: tuple[RewriteRule, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, RewriteRule)
)
