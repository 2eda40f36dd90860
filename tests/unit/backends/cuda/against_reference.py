"""Holds the kernels of commands for a GPU against their references, on operands and results wherever they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import nnc
from nnc.base.dtypes import bfloat16
from nnc.base.target import GpuTarget
from nnc.graph import command, infer_specs, reference, spec_of
from tests.unit.backends.cuda.launching import GPU, Call, Ran, run_steps
from tests.unit.backends.cuda.test_conformance import LAYOUTS, SOURCES

NDArray = np.ndarray[Any, Any]
Case = tuple[str, Sequence[NDArray], Mapping[str, Any]]


def results_of(cases: Sequence[Case], machine: GpuTarget = GPU) -> tuple[list[Call], list[Ran]]:
    """The calls of commands, run in one go; the layouts of their results take turns."""
    calls = []
    for turn, (name, inputs, params) in enumerate(cases):
        specs = infer_specs(command(name), tuple(map(spec_of, inputs)), params)
        garbage = [np.full(spec.nbytes, 171, np.uint8).view(spec.dtype).reshape(spec.shape) for spec in specs]
        calls.append(Call(name, inputs, [LAYOUTS[turn % len(LAYOUTS)](x) for x in garbage], params))
    return calls, run_steps(calls, machine)


def check(*cases: Case, tolerance: float = 0, bits: bool = False, machine: GpuTarget = GPU) -> list[Ran]:
    """Kernels give the references' numbers.

    Args:
        *cases: commands with operands and parameters.
        tolerance: share of the greatest number by which results may differ.
        bits: whether NaN and the signs of zeros must be the same, too.
        machine: for which they are printed.
    """
    calls, ran = results_of(cases, machine)
    for call in calls:
        with np.errstate(all="ignore"):
            wanted = reference[command(call.command)](*call.inputs, **call.params)
        for x, y in zip(call.outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            what = f"{call.command} of {call.inputs[0].dtype}{list(call.inputs[0].shape)} {call.params}"
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            if bits:
                assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes(), what
            elif not tolerance:
                exact = (z.astype(np.float32) if z.dtype == bfloat16 else z for z in (x, y))  # NumPy knows no NaN of it
                np.testing.assert_array_equal(*exact, what)
            else:
                size = float(np.max(np.abs(y[np.isfinite(y)]), initial=0))
                wide = _floats(x), _floats(y)
                np.testing.assert_allclose(*wide, tolerance, tolerance * size, err_msg=what)
    return ran


def _floats(x: NDArray) -> NDArray:
    """Numbers as float64; complex ones as two."""
    return np.stack([x.real, x.imag]) if x.dtype.kind == "c" else x.astype(np.float64)


def placed(x: NDArray, turn: int) -> NDArray:
    """The same values in a layout, of which all take turns."""
    return SOURCES[turn % len(SOURCES)](x)


def check_on_device(function: Any, *operands: NDArray) -> None:
    """A compiled function has printed kernels for all of its steps on the device, and the CPU's results."""
    f = nnc.compile(function)
    wanted, found = f(*operands), f(*(nnc.device_put(x, "ptx:0") for x in operands))
    assert "by their references" not in nnc.debug.explain(f)
    for x, y in zip(found, wanted, strict=True):
        a, b = np.asarray(x), np.asarray(y)
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), 2e-6, 2e-6)
