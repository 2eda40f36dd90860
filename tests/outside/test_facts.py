"""Commands of other packages that fill the columns of nnc are fused and compiled as the commands of nnc are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import dtypes
from nnc.commands.elementwise import BITS, FLOAT, elementwise
from nnc.commands.rules import Reduction
from nnc.graph import Command, TensorSpec, register
from nnc.lower.liveness import walk

pytestmark = [pytest.mark.usefixtures("own_registries"), pytest.mark.unguarded]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 40)).astype(np.float32)
NDArray = np.ndarray[Any, Any]


def steps_of(function: Callable[..., Any], *args: Any) -> list[tuple[str, bool]]:
    """The commands of a compiled program, and whether each is machine code."""
    program = nnc.compile(function).lower(*args).compile()._program
    return [(step.command.name, id(step) in program.natives) for step in walk(program.bound.steps)]


def add_reduction(name: str, by: Reduction, function: np.ufunc) -> Command:
    """Registers a reduction by its columns."""

    def infer(x: TensorSpec, *, axes: tuple[int, ...]) -> TensorSpec:
        return x.update(shape=tuple(n for i, n in enumerate(x.shape) if i not in axes))

    def reference(x: NDArray, *, axes: tuple[int, ...]) -> NDArray:
        wide = x.astype(dtypes.accumulator(x.dtype))
        return np.asarray(function.reduce(wide, axes)).astype(x.dtype)

    return register(name, infer=infer, reference=reference, reduction=by)


# -- reductions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_new_reduction_by_a_new_command_is_fused_with_what_it_reduces(axis: int, dtype: str) -> None:
    far = elementwise("test_far", np.hypot, "hypot(x, y)", arity=2, accepts=FLOAT)
    norm = add_reduction("test_norm", Reduction(far, lambda dtype: 0), np.hypot)
    x = nnp.asarray(X.astype(dtype))

    def of(reduce: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda x: reduce(x * 2 + 1, axes=(axis,)) - 1

    found = nnc.compile(of(norm))(x)
    wanted = np.linalg.norm(X.astype(dtype).astype(np.float64) * 2 + 1, axis=axis) - 1
    assert found.dtype == x.dtype
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=2e-3 if dtype == "float16" else 1e-6)
    assert steps_of(of(norm), x) == steps_of(of(nnc.graph.command("reduce_sum")), x) == [("fused", True)]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64"])
def test_a_new_reduction_by_a_command_of_nnc_is_compiled_in_every_dtype(dtype: str) -> None:
    parity = add_reduction("test_parity", Reduction(nnc.graph.command("bitwise_xor"), lambda dtype: 0), np.bitwise_xor)
    x = RNG.integers(0, 2 if dtype == "bool" else 100, (300, 70)).astype(dtype)
    np.testing.assert_array_equal(nnc.compile(lambda x: parity(x, axes=(0,)))(x), np.bitwise_xor.reduce(x, 0))
    np.testing.assert_array_equal(nnc.compile(lambda x: parity(x, axes=(0, 1)))(x), np.bitwise_xor.reduce(x, (0, 1)))
    assert steps_of(lambda x: parity(~x, axes=(1,)), x) == [("fused", True)]


def test_a_reduction_whose_command_no_kernel_prints_runs_its_reference() -> None:
    odd = elementwise("test_odd", np.gcd, "no_such_function(x, y)", arity=2, accepts=BITS)
    common = add_reduction("test_common", Reduction(odd, lambda dtype: 0), np.gcd)
    x = nnp.asarray([[4, 6, 8], [9, 27, 36]])
    np.testing.assert_array_equal(nnc.compile(lambda x: common(x, axes=(1,)))(x), [2, 9])


# -- cumulative commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 40), (40, 6), (3, 5, 64), (7,)])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_a_new_cumulative_command_is_compiled(shape: tuple[int, ...], dtype: str) -> None:
    """By an own command of floats that knows no shortcut, and by one of integers."""
    by, function = {
        "float32": (elementwise("test_log_sum", np.logaddexp, "logaddexp(x, y)", arity=2, accepts=FLOAT), np.logaddexp),
        "int16": (nnc.graph.command("bitwise_xor"), np.bitwise_xor),
    }[dtype]
    running = register(
        "test_running",
        infer=lambda x, *, axis: x,
        reference=lambda x, *, axis: function.accumulate(x, axis),
        cumulative=Reduction(by, lambda dtype: -np.inf if dtypes.is_float(dtype) else 0),
    )
    x = (RNG.normal(size=shape) * 9).astype(dtype)
    for axis in range(len(shape)):
        along = lambda x, axis=axis: running(x, axis=axis)
        wanted = function.accumulate(x, axis)
        np.testing.assert_allclose(nnc.compile(along)(x), wanted, rtol=1e-5, atol=1e-5)
        assert steps_of(along, x) == [("test_running", True)]
