"""Printed pooling kernels against the reference: every command, geometry and dtype, and ways in which operands can lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.backends.cpu.kernels.pooling
from nnc.backends.choose import choose_kernel
from nnc.backends.cpu.compiler.jit import compiler
from nnc.base.dtypes import BY_NAME
from nnc.commands.pool import max_pool_places, place_dtype
from nnc.commands.windows import window_shape
from nnc.graph import command, infer_specs, reference, spec_of
from nnc.nn import avg_pool, max_pool

pytestmark = pytest.mark.skipif(compiler() is None, reason="LLVM is not installed")

RNG = np.random.default_rng(0)
COMMANDS = ("max_pool", "max_pool_places", "sum_pool", "sum_pool_input_grad", "pick_pool_input_grad")

# shape with the channels first, window, stride, padding, dilation
GEOMETRIES: dict[str, tuple[Any, ...]] = {
    "halves": ((2, 3, 8, 10), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    "as ResNet begins": ((2, 5, 14, 45), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
    "overlapping, many channels": ((1, 37, 6, 7), (3, 2), (1, 1), ((1, 0), (0, 1)), (1, 1)),
    "rows of vectors": ((2, 2, 5, 70), (2, 9), (1, 1), ((0, 0), (4, 4)), (1, 1)),
    "dilated": ((2, 4, 9, 40), (2, 3), (3, 1), ((1, 1), (2, 2)), (2, 2)),
    "windows apart": ((2, 4, 20), (2,), (5,), ((0, 0),), (1,)),
    "3 axes": ((2, 3, 4, 5, 6), (2, 2, 3), (1, 2, 2), ((0, 1), (1, 0), (1, 1)), (1, 1, 1)),
    "all": ((2, 6, 7, 9), (7, 9), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "a window of more than 256": ((1, 2, 20, 20), (17, 18), (1, 2), ((2, 2), (1, 1)), (1, 1)),
    "no channels": ((8, 40), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    "empty": ((0, 3, 4), (2,), (2,), ((0, 0),), (1,)),
}


def problem(geometry: str, name: str, dtype: Any, *, last: bool = False) -> tuple[list[Any], dict[str, Any]]:
    """Operands, with ties, and parameters of a command."""
    shape, window, stride, padding, dilation = GEOMETRIES[geometry]
    at = len(shape) - len(window)
    params: dict[str, Any] = {"window": window, "stride": stride, "padding": padding, "dilation": dilation}
    out = window_shape("pool", shape[at:], window, stride, padding, dilation)
    x, ct = (RNG.integers(-9, 9, s).astype(dtype) for s in (shape, (*shape[:at], *out)))
    places = RNG.integers(0, np.prod(window), ct.shape).astype(place_dtype(window))
    if last:
        params["channels_last"] = True
        x, ct, places = (np.ascontiguousarray(np.moveaxis(a, at - 1, -1)) for a in (x, ct, places))
    if name.endswith("_input_grad"):
        return [ct, places] if name.startswith("pick") else [ct], {"spatial": shape[at:], **params}
    return [x], params


def run(name: str, operands: list[Any], params: dict[str, Any], out: Any = None) -> Any:
    """Returns the result that the printed kernel writes over garbage."""
    specs = tuple(map(spec_of, operands))
    kernel = choose_kernel(command(name), specs, params)
    assert kernel.backend == "cpu"
    (spec,) = infer_specs(command(name), specs, params)
    out = np.full(spec.shape, 77, spec.dtype) if out is None else out
    nbytes = kernel.workspace(specs, params)
    kernel.run(operands, [out, *([np.full(nbytes, 255, np.uint8)] if nbytes else [])], params)
    return out


CASES = [(geometry, last) for geometry in GEOMETRIES for last in (False, True) if not last or geometry != "no channels"]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(("geometry", "last"), CASES)
def test_kernels_agree_with_the_reference(geometry: str, last: bool, name: str) -> None:
    operands, params = problem(geometry, name, np.float32, last=last)
    np.testing.assert_array_equal(run(name, operands, params), reference[command(name)](*operands, **params))


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("name", COMMANDS)
def test_kernels_take_every_dtype_that_they_compute_with(name: str, last: bool) -> None:
    taken = set()
    for dtype in BY_NAME.values():
        if dtype.kind not in "iuf" and dtype.name != "bfloat16":
            continue
        operands, params = problem("as ResNet begins", name, dtype, last=last)
        if choose_kernel(command(name), tuple(map(spec_of, operands)), params).backend != "cpu":
            continue
        taken.add(dtype.name)
        expected = reference[command(name)](*operands, **params)
        np.testing.assert_array_equal(run(name, operands, params), expected)
    assert taken == {name for name in BY_NAME if name.startswith(("int", "uint", "float", "bfloat"))}


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("name", COMMANDS[:3])
def test_nan_and_infinity_are_found_as_the_reference_finds_them(name: str, last: bool) -> None:
    (x,), params = problem("overlapping, many channels", name, np.float32, last=last)
    x[RNG.random(x.shape) < 0.3] = np.nan
    x[RNG.random(x.shape) < 0.3] = -np.inf
    x[RNG.random(x.shape) < 0.1] = np.inf
    np.testing.assert_array_equal(run(name, [x], params), reference[command(name)](x, **params))


def gaps(a: Any) -> Any:
    return np.repeat(a, 2, -1)[..., ::2]


def backwards(a: Any) -> Any:
    return np.ascontiguousarray(a[:, ::-1, ::-1])[:, ::-1, ::-1]


def turned(a: Any) -> Any:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1)


def misaligned(a: Any) -> Any:
    view = np.empty(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


@pytest.mark.parametrize("layout", [gaps, backwards, turned, misaligned])
@pytest.mark.parametrize("name", COMMANDS)
def test_operands_and_results_may_lie_in_any_way(name: str, layout: Any) -> None:
    operands, params = problem("overlapping, many channels", name, np.float32)
    expected = reference[command(name)](*operands, **params)
    found = run(name, [layout(a) for a in operands], params, layout(np.full_like(expected, 77)))
    np.testing.assert_array_equal(found, expected)


def check_both(x: Any, params: dict[str, Any], layout: Any = np.ascontiguousarray) -> None:
    """One kernel finds the greatest elements and their places."""
    both = command("max_pool_both")
    expected = reference[both](x, **params)
    kernel = choose_kernel(both, (spec_of(x),), params)
    assert kernel.backend == "cpu"
    found = [layout(np.full(part.shape, 77, part.dtype)) for part in expected]
    kernel.run([layout(x)], found, params)
    for part, want, name in zip(found, expected, ("max_pool", "max_pool_places"), strict=True):
        np.testing.assert_array_equal(part, want)
        np.testing.assert_array_equal(want, reference[command(name)](x, **params))


@pytest.mark.parametrize(("geometry", "last"), CASES)
def test_one_kernel_finds_the_greatest_elements_and_their_places(geometry: str, last: bool) -> None:
    for dtype in (np.float32, np.int8, np.float16):
        (x,), params = problem(geometry, "max_pool", dtype, last=last)
        check_both(x, params)


@pytest.mark.parametrize("layout", [gaps, backwards, turned, misaligned])
def test_it_does_so_wherever_operands_and_results_lie_and_finds_nan_first(layout: Any) -> None:
    (x,), params = problem("overlapping, many channels", "max_pool", np.float32)
    x[RNG.random(x.shape) < 0.3] = np.nan
    x[RNG.random(x.shape) < 0.3] = -np.inf
    check_both(x, params, layout)


def test_threads_share_large_poolings() -> None:
    x = RNG.normal(size=(4, 8, 128, 128)).astype(np.float32)
    params = {"window": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    np.testing.assert_array_equal(run("max_pool", [x], params), x.reshape(4, 8, 64, 2, 64, 2).max((3, 5)))
    places = reference[max_pool_places](x, **params)
    found = run("pick_pool_input_grad", [x[..., ::2, ::2], places], {"spatial": (128, 128), **params})
    assert np.count_nonzero(found) == places.size
    np.testing.assert_allclose(found.sum((2, 3)), x[..., ::2, ::2].sum((2, 3)), rtol=1e-3, atol=1e-3)


def test_programs_pool_forwards_and_backwards() -> None:
    x = 0.1 * RNG.permutation(2 * 3 * 9 * 9).reshape(2, 3, 9, 9).astype(np.float32)  # no element comes close to another

    def loss(x: Any) -> Any:
        return nnc.numpy.sum(avg_pool(max_pool(x, 3, stride=2, padding=1) ** 2, 2))

    compiled = nnc.compile(nnc.value_and_grad(loss))
    value, gradient = compiled(x)
    step = RNG.uniform(-0.04, 0.04, x.shape)
    moved = (float(loss(x + step)) - float(loss(x - step))) / 2  # in float64, exact for squares
    np.testing.assert_allclose(moved, np.vdot(np.asarray(gradient), step), rtol=1e-5)
    np.testing.assert_allclose(float(value), float(loss(x)), rtol=1e-6)
