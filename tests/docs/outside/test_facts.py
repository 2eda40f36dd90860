"""Commands of other packages that fill the columns of nnc are fused and compiled as the commands of nnc are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes
from nnc.commands.elementwise import BITS, FLOAT, elementwise
from nnc.commands.rules import Reduction
from nnc.graph import Command, TensorSpec, register
from nnc.graph.rules import AsView, Rules
from nnc.lower.plan.liveness import walk

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

    return register(name, Rules(infer=infer, reference=reference), reduction=by)


# -- elementwise commands ----------------------------------------------------------------------------------------------


def add_softplus() -> Command:
    """Registers log(1 + exp(x)) by its scalar expression."""
    return elementwise(
        "test_softplus", lambda x: np.logaddexp(x, 0), "log1p(exp(-abs(x))) + max(x, x * 0)", accepts=FLOAT
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_new_elementwise_command_is_fused_with_its_neighbours(dtype: str) -> None:
    softplus = add_softplus()
    x = nnp.asarray(X).astype(dtype)

    def of(command: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda x: nnp.sum(command(x * 2) + x, axis=1)

    found = nnc.compile(of(softplus))(x)
    assert found.dtype == x.dtype
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-5)
    wanted = np.sum(np.logaddexp(2 * X.astype(np.float64), 0) + X, axis=1)
    np.testing.assert_allclose(np.asarray(found.astype("float64")), wanted, rtol=tolerance, atol=40 * tolerance)
    assert steps_of(of(softplus), x) == steps_of(of(nnp.tanh), x) == [("fused", True)]


def test_a_new_elementwise_command_is_the_epilogue_of_a_product() -> None:
    softplus = add_softplus()
    x, w = (nnp.asarray(RNG.normal(size=(64, 64)).astype(np.float32)) for _ in range(2))

    def of(command: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w, b: command(x @ w + b)

    found = nnc.compile(of(softplus))(x, w, x[0])
    wanted = np.logaddexp(np.asarray(x, np.float64) @ np.asarray(w, np.float64) + np.asarray(x[0]), 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert steps_of(of(softplus), x, w, x[0]) == steps_of(of(nnp.tanh), x, w, x[0])


def test_a_new_command_that_is_exact_takes_short_floats_as_they_are() -> None:
    """The next float16: the next float32 would be rounded back."""
    kept = register(
        "test_next",
        Rules(
            infer=lambda x: x,
            reference=lambda x: np.nextafter(x, x * 2),
            exact=True,
            scalar="nextafter(x, x * 2)",
        ),
    )
    x = np.array([1, 2, -3, 0.1], np.float16)
    np.testing.assert_array_equal(nnc.compile(lambda x: kept(x))(x), np.nextafter(x, x * 2))


def test_a_new_command_that_is_one_function_of_numpy_writes_into_planned_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Uses its column numpy_call, and for others numpy_into, where kernels are not compiled."""
    written: list[Any] = []

    def write(x: Any, out: Any) -> None:
        written.append(out)
        np.negative(x, out=out)

    turned = register("test_turned", Rules(infer=lambda x: x, reference=np.negative), numpy_into=lambda x: write)
    far = elementwise("test_far", np.hypot, "hypot(x, y)", arity=2, accepts=FLOAT)
    monkeypatch.setenv("NNC_NATIVE", "0")
    found = nnc.compile(lambda x: turned(far(x, x)))(X)
    np.testing.assert_array_equal(found, -np.hypot(X, X))
    assert [out.shape for out in written] == [X.shape]


# -- reductions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_new_reduction_by_a_new_command_is_fused_with_its_operand(axis: int, dtype: str) -> None:
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
    odd = elementwise("test_odd", np.gcd, "gcd(x, y)", arity=2, accepts=BITS)
    common = add_reduction("test_common", Reduction(odd, lambda dtype: 0), np.gcd)
    x = nnp.asarray([[4, 6, 8], [9, 27, 36]])
    np.testing.assert_array_equal(nnc.compile(lambda x: common(x, axes=(1,)))(x), [2, 9])


# -- cumulative commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 40), (40, 6), (3, 5, 64), (7,)])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_a_new_cumulative_command_is_compiled(shape: tuple[int, ...], dtype: str) -> None:
    """Tries an own command of floats that knows no shortcut, and one of integers."""
    by, function = {
        "float32": (elementwise("test_log_sum", np.logaddexp, "logaddexp(x, y)", arity=2, accepts=FLOAT), np.logaddexp),
        "int16": (nnc.graph.command("bitwise_xor"), np.bitwise_xor),
    }[dtype]
    running = register(
        "test_running",
        Rules(infer=lambda x, *, axis: x, reference=lambda x, *, axis: function.accumulate(x, axis)),
        cumulative=Reduction(by, lambda dtype: -np.inf if dtypes.is_float(dtype) else 0),
    )
    x = (RNG.normal(size=shape) * 9).astype(dtype)
    for axis in range(len(shape)):
        along = lambda x, axis=axis: running(x, axis=axis)
        wanted = function.accumulate(x, axis)
        np.testing.assert_allclose(nnc.compile(along)(x), wanted, rtol=1e-5, atol=1e-5)
        assert steps_of(along, x) == [("test_running", True)]


# -- views -------------------------------------------------------------------------------------------------------------


def add_view(
    name: str, function: Callable[..., NDArray], pairs: Callable[[int, int], list[tuple[int, int]]]
) -> Command:
    """Registers a view of float arrays without parameters by its columns."""
    return register(
        name,
        Rules(
            infer=lambda x: x.update(shape=function(np.empty(x.shape)).shape),
            reference=function,
            alias=AsView(lambda x, out: pairs(x.ndim, out.ndim)),
        ),
    )


def test_a_new_view_of_whole_axes_is_read_by_kernels_without_a_copy() -> None:
    swap = add_view("test_swap", lambda x: x.swapaxes(0, 1), lambda n, m: [(0, 1), (1, 0)])
    rows = add_view(
        "test_rows", lambda x: np.broadcast_to(x, (6, *x.shape)), lambda n, m: [(i, i + 1) for i in range(n)]
    )
    y = RNG.normal(size=(40, 6)).astype(np.float32)

    def new(x: Any, y: Any) -> Any:
        return swap(x * 2) + y, nnp.sum(rows(y[:, 0]) * x, axis=1)

    def old(x: Any, y: Any) -> Any:
        return nnp.transpose(x * 2) + y, nnp.sum(nnp.broadcast_to(y[:, 0], (6, 40)) * x, axis=1)

    for found, wanted in zip(nnc.compile(new)(X, y), nnc.compile(old)(X, y), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert steps_of(new, X, y) == steps_of(old, X, y)
    assert {name for name, _ in steps_of(new, X, y)} == {"fused"}


def test_a_new_view_that_is_a_result_is_copied_by_machine_code() -> None:
    swap = add_view("test_swap", lambda x: x.swapaxes(0, 1), lambda n, m: [(0, 1), (1, 0)])
    np.testing.assert_array_equal(nnc.compile(swap)(X), X.T)
    assert steps_of(swap, X) == steps_of(nnp.transpose, X) == [("copy", True)]


def test_a_new_view_that_permutes_equal_axes_is_no_flat_kernel() -> None:
    """All operands lie without gaps, so that going through them from the first byte to the last would look right."""
    swap = add_view("test_swap", lambda x: x.swapaxes(0, 1), lambda n, m: [(0, 1), (1, 0)])
    x = RNG.normal(size=(64, 64)).astype(np.float32)
    np.testing.assert_array_equal(nnc.compile(lambda x: swap(x) + 1)(x), x.T + np.float32(1))
    np.testing.assert_array_equal(nnc.compile(lambda x: swap(x) + x)(x), x.T + x)
