"""Printed scalar commands give what their references give, in every dtype, for scalars and for vectors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from nnc import dtypes
from nnc.commands.rules import scalar as expressions
from nnc.errors import NncError
from nnc.graph import Command, TensorSpec, attribute, command
from nnc.lower.codegen.builder import has_code
from nnc.lower.codegen.scalars import has_scalar, scalar
from tests.lower.codegen.running import Elementwise, Machine

MACHINE = Machine()
PARAMS: dict[str, list[dict[str, Any]]] = {
    "integer_pow": [{"exponent": e} for e in (-5, -2, -1, 0, 1, 2, 3, 7, 20)],
    "convert": [{"dtype": dtype} for dtype in dtypes.ALL],
    "full": [{"shape": (3,), "dtype": dtype, "value": 3} for dtype in dtypes.ALL],
    "polygamma": [{"n": n} for n in (0, 1)],
}
ROUNDED = {  # units in the last place by which these may differ from NumPy's, which has errors of its own
    "div": 0, "sqrt": 0, "reciprocal": 0, "lgamma": 2000, "polygamma": 2000, "erfinv": 2000,
}  # fmt: skip
EXACT = frozenset(
    "neg add sub mul safe_mul div reciprocal floor_divide remainder fmod abs sign square sqrt floor ceil trunc round maximum"
    " minimum copysign nextafter equal not_equal less less_equal greater greater_equal isnan isinf isfinite signbit"
    " bitwise_not bitwise_and bitwise_or bitwise_xor shift_left shift_right select convert stop_gradient copy full".split()
)
LOOSE = {"pow": 6, "integer_pow": 6, "lgamma": 64, "polygamma": 64, "erfinv": 64}
NDArray = np.ndarray[Any, Any]


def samples(dtype: dtypes.DType, seed: int) -> NDArray:
    """Numbers of all sizes, small ones more often, and the special ones."""
    rng = np.random.default_rng(seed)
    if dtypes.is_bool(dtype):
        return rng.integers(0, 2, 64).astype(bool)
    if dtypes.is_integer(dtype):
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, 400, dtype=dtype, endpoint=True)
        small = rng.integers(max(info.min, -9), 70, 400).astype(dtype)
        edges = np.array([info.min, info.max, 0, 1, 2, info.max // 2], dtype)
        return rng.permutation(np.concatenate([wide, small, np.repeat(edges, 20)]))
    with np.errstate(over="ignore"):
        mixed = np.concatenate([rng.normal(size=400), rng.normal(size=300) * 10.0 ** rng.uniform(-9, 9, 300), rng.integers(-9, 9, 100)])
        edges = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e300, -1e300, 3.4e38])
        return rng.permutation(np.concatenate([mixed, np.repeat(edges, 12)])).astype(dtype)


def cases() -> list[tuple[Command, tuple[dtypes.DType, ...], dict[str, Any]]]:
    """Every command, dtype and parameter for which `has_scalar` promises code."""
    found = []
    for name in [target.name for target in expressions]:
        target = command(name)
        arity = target.arity or 0
        for dtype, params in itertools.product(dtypes.ALL, PARAMS.get(name, [{}])):
            inputs = (dtypes.bool_, dtype, dtype)[-arity:] if name == "select" else (dtype,) * arity
            if name == "full" and params["dtype"] != dtype:
                continue
            try:
                output = attribute("infer")[target](*(TensorSpec((4,), each) for each in inputs), **params)
            except NncError:
                continue
            if has_scalar(target, inputs, output.dtype, params):
                found.append((target, inputs, params))
    return found


def name_of(case: Any) -> str:
    target, inputs, params = case
    shown = [getattr(value, "name", value) for key, value in params.items() if key != "shape"]
    return "-".join(map(str, (target.name, *(dtype.name for dtype in inputs[-1:]), *shown)))


def fitting(values: NDArray, target: Command, params: dict[str, Any]) -> NDArray:
    """Values that the parameters leave defined: conversions to integers take what fits."""
    if target.name != "convert" or not dtypes.is_float(values.dtype):
        return values
    wanted = dtypes.as_dtype(params["dtype"])
    if dtypes.is_bool(wanted) or dtypes.is_float(wanted):
        return values
    info = np.iinfo(wanted)
    wide = np.nan_to_num(values.astype(np.float64))
    inside = (wide > max(float(info.min) - 1, -(2.0**62))) & (wide < min(float(info.max), 2.0**62))
    return np.where(inside, wide, 1).astype(values.dtype)


def distance(got: NDArray, wanted: NDArray) -> NDArray:
    """In units of the last place; infinite where one is NaN or an infinity and the other is not, or zeros differ in sign."""
    wide = np.longdouble if wanted.dtype == np.float64 else np.float64
    x, y = got.astype(wide), wanted.astype(wide)
    info = dtypes_info(wanted.dtype)
    _, exponent = np.frexp(np.where(np.isfinite(y), y, 1))
    unit = np.ldexp(np.ones_like(y), np.maximum(exponent - 1, info[0]) - info[1])
    with np.errstate(invalid="ignore"):
        apart = np.abs(x - y) / unit
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0, np.where(np.isfinite(apart), apart, np.inf)).astype(np.float64)


def dtypes_info(dtype: dtypes.DType) -> tuple[int, int]:
    return {"float16": (-14, 10), "bfloat16": (-126, 7), "float32": (-126, 23), "float64": (-1022, 52)}[dtype.name]


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_printed_commands_give_what_their_references_give(case: Any) -> None:
    target, inputs, params = case
    output = attribute("infer")[target](*(TensorSpec((4,), each) for each in inputs), **params).dtype
    arrays = [fitting(samples(dtype, seed), target, params) for seed, dtype in enumerate(inputs)]
    size = min((x.size for x in arrays), default=3)
    arrays = [x[:size] for x in arrays]
    wanted = np.asarray(attribute("reference")[target](*arrays, **params))
    body = lambda code, *values: scalar(code, target, values, output, params)
    for lanes in (16, 0):
        run = Elementwise(MACHINE, body, inputs, output, lanes)
        got = run(*arrays) if arrays else run(np.zeros(3))
        assert got.dtype == wanted.dtype
        if not dtypes.is_float(output):
            np.testing.assert_array_equal(got, wanted)
            continue
        apart = distance(got, wanted)
        bound = 0 if target.name in EXACT else LOOSE.get(target.name, 3) if output.itemsize > 2 else 1
        worst = int(np.argmax(apart))
        operands = [x[worst] for x in arrays]
        assert apart[worst] <= bound, f"{operands}: {got[worst]}, the reference gives {wanted[worst]}, lanes {lanes}"
