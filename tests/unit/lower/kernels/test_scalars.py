"""Printed scalar commands agree with their references, in every dtype, for scalars and for vectors."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nnc.base import dtypes
from nnc.errors import NncError
from nnc.graph import Command, TensorSpec, attribute, command
from nnc.graph.registry import scalar as expressions
from nnc.lower.kernels.scalars import count_instructions, has_scalar, scalar
from tests.contract.commands.sample import params_of
from tests.unit.lower.kernels.running import Elementwise, run

SIZE = 1024
SCALARS = (
    dtypes.bool_,
    dtypes.int32,
    dtypes.uint8,
    dtypes.float32,
    dtypes.float64,
)  # dtypes that are tried without lanes, too
PARAMS: dict[str, list[dict[str, Any]]] = {  # where those of the contract suite's rows do not do
    "integer_pow": [{"exponent": e} for e in (-5, -2, -1, 0, 1, 2, 3, 7, 20)],
    "convert": [{"dtype": dtype} for dtype in dtypes.ALL],
    "full": [{"shape": (SIZE,), "dtype": dtype, "value": 3} for dtype in dtypes.ALL],
}
EXACT = frozenset(  # held to the last bit
    name
    for line in (
        "neg add sub mul safe_mul div reciprocal floor_divide remainder fmod abs sign square sqrt floor ceil trunc round",
        "exponent ldexp bit_count gcd lcm",
        "maximum minimum copysign nextafter equal not_equal less less_equal greater greater_equal isnan isinf isfinite",
        "signbit bitwise_not bitwise_and bitwise_or bitwise_xor shift_left shift_right select convert stop_gradient copy full",
    )
    for name in line.split()
)
CANCELLING = ("logaddexp", "lgamma")
LOOSE = {"pow": 6, "integer_pow": 6, "lgamma": 64, "polygamma": 64, "erfinv": 64, "i0e": 16, "i1e": 16}
NDArray = np.ndarray[Any, Any]


def samples(dtype: dtypes.DType, seed: int) -> NDArray:
    """Numbers of all sizes, small ones more often, and the special ones."""
    rng = np.random.default_rng(seed)
    if dtypes.is_bool(dtype):
        return rng.integers(0, 2, SIZE).astype(bool)
    if dtypes.is_integer(dtype):
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, SIZE // 2, dtype=dtype, endpoint=True)
        small = rng.integers(max(info.min, -9), 70, SIZE // 4).astype(dtype)
        edges = np.array([info.min, info.max, 0, 1, 2, info.max // 2, info.max, 0], dtype)
        return rng.permutation(np.concatenate([wide, small, np.repeat(edges, SIZE // 32)]))
    edges = np.array([0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e300, -1e300, 3e38])
    mixed = [rng.normal(size=SIZE // 2), rng.normal(size=SIZE // 4) * 10.0 ** rng.uniform(-9, 9, SIZE // 4)]
    with np.errstate(over="ignore"):
        return rng.permutation(np.concatenate([*mixed, np.repeat(edges, SIZE // 64)])).astype(dtype)


@dataclass(frozen=True)
class Case:
    """A command on operands of these dtypes."""

    target: Command
    inputs: tuple[dtypes.DType, ...]
    output: dtypes.DType
    params: dict[str, Any]

    def operands(self) -> list[NDArray]:
        return [samples(dtype, seed) for seed, dtype in enumerate(self.inputs)]

    def kernel(self, lanes: int) -> Elementwise:
        body = lambda code, *values: scalar(code, self.target, values, self.output, self.params)
        return Elementwise(body, self.inputs, self.output, lanes, SIZE)

    def check(self, operands: list[NDArray], got: NDArray) -> None:
        wanted = np.asarray(attribute("reference")[self.target](*operands, **self.params))
        assert got.dtype == wanted.dtype
        if not dtypes.is_float(self.output):
            np.testing.assert_array_equal(got, wanted, err_msg=str(self))
            return
        apart = distance(got, wanted)
        if self.target.name in CANCELLING:  # the larger term's last place counts
            sizes = [np.nan_to_num(np.abs(x.astype(np.float64))) for x in operands]
            apart = distance(got, wanted, np.maximum(1, np.max(sizes, axis=0)))
        name, narrow = self.target.name, self.output.itemsize == 2
        bound = 0 if name in EXACT else 1 if narrow else LOOSE.get(name, 3)
        worst = int(np.argmax(apart))
        given = [x[worst] for x in operands]
        assert apart[worst] <= bound, f"{self}: {given} gives {got[worst]}, the reference {wanted[worst]}"


def cases(target: Command) -> list[Case]:
    """Every dtype and parameter for which `has_scalar` promises code."""
    found = []
    arity = target.arity or 0
    for dtype, params in itertools.product(dtypes.ALL, PARAMS.get(target.name) or params_of(target.name)):
        inputs = (dtypes.bool_, dtype, dtype)[-arity:] if target.name == "select" else (dtype,) * arity
        if target.name == "full" and params["dtype"] != dtype:
            continue
        try:
            output = attribute("infer")[target](*(TensorSpec((SIZE,), each) for each in inputs), **params).dtype
        except NncError:
            continue
        if has_scalar(target, inputs, output, params):
            found.append(Case(target, inputs, output, params))
    return found


def distance(got: NDArray, wanted: NDArray, size: NDArray | None = None) -> NDArray:
    """In units of the last place; infinite where one is NaN or an infinity and the other is not, or zeros differ in sign."""
    wide = np.longdouble if wanted.dtype == np.float64 else np.float64
    x, y = got.astype(wide), wanted.astype(wide)
    info = dtypes_info(wanted.dtype)
    z = y if size is None else np.maximum(np.where(np.isfinite(y), np.abs(y), 1), size)
    _, exponent = np.frexp(np.where(np.isfinite(z), z, 1))
    unit = np.ldexp(np.ones_like(y), np.maximum(exponent - 1, info[0]) - info[1])
    with np.errstate(invalid="ignore"):
        apart = np.abs(x - y) / unit
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0, np.where(np.isfinite(apart), apart, np.inf)).astype(np.float64)


def dtypes_info(dtype: dtypes.DType) -> tuple[int, int]:
    return {"float16": (-14, 10), "bfloat16": (-126, 7), "float32": (-126, 23), "float64": (-1022, 52)}[dtype.name]


TARGETS = [target for target in expressions if cases(target)]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_printed_command_agrees_with_its_reference(target: Command) -> None:
    tried = [(case, lanes) for case in cases(target) for lanes in (16, 0) if lanes or case.output in SCALARS]
    operands = [case.operands() for case, _ in tried]
    results = run([case.kernel(lanes) for case, lanes in tried], operands)
    for (case, _), given, got in zip(tried, operands, results, strict=True):
        case.check(given, got)


def test_commands_that_cannot_be_printed_are_left_to_the_references() -> None:
    for name, dtype in (
        ("exp", dtypes.complex64),
        ("real", dtypes.complex64),
        ("pow", dtypes.int32),
        ("iota", dtypes.int32),
    ):
        target = command(name)
        assert not has_scalar(target, (dtype,) * (target.arity or 0), dtype, {})


def test_instructions_are_counted_in_the_expression() -> None:
    """A vector of divisions and roots takes a few, of functions many; a command that no kernel prints counts as a function."""
    counted = {
        name: count_instructions(command(name), 16)
        for name in ("add", "isfinite", "copy", "div", "rsqrt", "exp", "dot")
    }
    assert counted == {"add": 1, "isfinite": 1, "copy": 1, "div": 4, "rsqrt": 6, "exp": 16, "dot": 16}
