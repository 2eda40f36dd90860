"""Holds the printed kernels of commands that stand alone against the references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnc.graph import command, infer_specs, reference, spec_of
from tests.unit.backends.cpu.against_reference import Layout, dense
from tests.unit.backends.cuda.launching import Call, Ran, run_steps

NDArray = np.ndarray[Any, Any]


def call_of(name: str, inputs: Sequence[NDArray], params: dict[str, Any], layout: Layout = dense) -> Call:
    """A call of a command, whose results are written over other bytes in memory of a layout."""
    outputs = []
    for spec in infer_specs(command(name), tuple(map(spec_of, inputs)), params):
        other = np.full(spec.nbytes, 171, np.uint8).view(spec.dtype).reshape(spec.shape)
        outputs.append(layout(other))
    return Call(name, inputs, outputs, params)


def check_calls(calls: Sequence[Call], tolerance: float | None = None) -> list[Ran]:
    """Runs calls together; the results have the bits of the reference, or its numbers within a tolerance (0: but for signs of zeros
    and of NaN).
    """
    wanted = []
    for call in calls:
        with np.errstate(all="ignore"):
            found = reference[command(call.command)](*call.inputs, **call.params)
        wanted.append(found if isinstance(found, tuple) else (found,))
    ran = run_steps(calls)
    for call, expected, each in zip(calls, wanted, ran, strict=True):
        assert each.status == 0
        for x, y in zip(call.outputs, expected, strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            where = f"{call.command} of {call.inputs[0].dtype}{call.inputs[0].shape} {call.params}"
            if tolerance is None:
                assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes(), where
            else:
                wide = np.complex128 if x.dtype.kind == "c" else np.float64
                np.testing.assert_allclose(x.astype(wide), y.astype(wide), tolerance, tolerance, err_msg=where)
    return ran
