"""Runs the native kernel of a command on arrays as they lie, and its reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnc.base.dtypes import BY_NAME
from nnc.base.target import Target
from nnc.device import load_kernels
from nnc.graph import Kernel, TensorSpec, command, infer_specs, reference, spec_of
from nnc.graph.kernels import kernels_for
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View
from tests.figures import HERE

NDArray = np.ndarray[Any, Any]
Layout = Callable[[NDArray], NDArray]

load_kernels()

REAL = [name for name in BY_NAME if not name.startswith("complex")]


def values(name: str, shape: tuple[int, ...], seed: int = 0) -> NDArray:
    """Numbers with repetitions, the extremes of the dtype, and for floats NaN, infinities and both zeros."""
    rng, dtype = np.random.default_rng(seed), BY_NAME[name]
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        few = rng.integers(0, 10, shape).astype(dtype)
        return np.where(rng.random(shape) < 0.5, few, rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    x = np.round(rng.normal(size=shape) * 3, 1)
    special = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 2.0], shape)
    x = np.where(rng.random(shape) < 0.3, special, x)
    if dtype.kind == "c":
        return (x + 1j * rng.normal(size=shape)).astype(dtype)
    return x.astype(dtype)


def dense(x: NDArray) -> NDArray:
    """The same values, without gaps."""
    return np.array(x, order="C")


def backwards(x: NDArray) -> NDArray:
    """The same values, in memory from the last to the first."""
    return np.flip(dense(np.flip(x))) if x.ndim else dense(x)


def spaced(x: NDArray) -> NDArray:
    """The same values, with gaps between them."""
    if not x.ndim:
        return x
    room = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
    part = room[(slice(None, None, 2),) * x.ndim]
    part[...] = x
    return part


def columns(x: NDArray) -> NDArray:
    """The same values, the first axis innermost in memory."""
    return np.array(x, order="F")


def odd(x: NDArray) -> NDArray:
    """The same values at an odd address."""
    room = np.zeros(x.nbytes + 1, np.uint8)
    moved: NDArray = np.ndarray(x.shape, x.dtype, room, 1)
    moved[...] = x
    return moved


LAYOUTS: tuple[Layout, ...] = (dense, backwards, spaced, columns, odd)


def cpu_kernel(
    name: str, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target = HERE
) -> Kernel | None:
    """The printed kernel of a command, where it takes these inputs."""
    found = [k for k in kernels_for(command(name), machine) if k.backend == "cpu" and k.supports(specs, params)]
    return found[0] if found else None


def native_of(name: str, inputs: Sequence[NDArray], params: Mapping[str, Any]) -> Native:
    """Returns the code that is compiled for a command on dense inputs."""
    specs = tuple(map(spec_of, inputs))
    chosen = cpu_kernel(name, specs, params)
    assert chosen is not None and chosen.native is not None
    outputs = [np.empty(spec.shape, spec.dtype) for spec in infer_specs(command(name), specs, params)]
    x, y = (tuple(View(0, spec_of(a), 0, a.strides) for a in group) for group in (inputs, outputs))
    found = chosen.native(Step(command(name), x, y, params))
    assert found is not None
    return found


def run(
    name: str, inputs: Sequence[NDArray], params: Mapping[str, Any], layout: Layout = dense, machine: Target = HERE
) -> list[NDArray]:
    """The outputs of the native kernel, written over other bytes in memory of a layout."""
    specs = tuple(map(spec_of, inputs))
    chosen = cpu_kernel(name, specs, params, machine)
    assert chosen is not None and chosen.native is not None
    outputs = []
    for spec in infer_specs(command(name), specs, params):
        other = np.full(spec.nbytes, 171, np.uint8).view(spec.dtype).reshape(spec.shape)
        outputs.append(layout(other))
    nbytes = chosen.workspace(specs, params)
    room = [np.empty(nbytes, np.uint8)] if nbytes else []
    x, y = (tuple(View(0, spec_of(a), 0, a.strides) for a in group) for group in (inputs, [*outputs, *room]))
    assert chosen.native(Step(command(name), x, y, params)) is not None
    chosen.run(list(inputs), [*outputs, *room], params)
    return outputs


def check(
    name: str,
    inputs: Sequence[NDArray],
    params: Mapping[str, Any],
    layout: Layout = dense,
    tolerance: float | None = None,
    machine: Target = HERE,
) -> None:
    """The native kernel gives the reference's bits, or with a `tolerance` its numbers (0: all but the signs of zeros and NaN)."""
    found = run(name, inputs, params, layout, machine)
    with np.errstate(all="ignore"):
        expected = reference[command(name)](*inputs, **params)
    for x, y in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if tolerance is None:
            assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()
        elif tolerance == 0:
            np.testing.assert_array_equal(x.astype(np.float64), y.astype(np.float64))
        else:
            np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), tolerance, tolerance)
