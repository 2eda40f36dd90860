"""The reference as a backend: runs any command through NumPy, writing into memory that is there already.

Commands that are one NumPy function write their result in place; the others copy the result of their reference.
Callers of these kernels silence NumPy's floating-point warnings around them, once for many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.rules import in_place_of, numpy_into, ufunc_of
from nnc.errors import InternalError
from nnc.graph import Command, Kernel, TensorSpec, reference
from nnc.lower.kernels.references import store
from nnc.lower.plan.stages import NDArray

BACKEND = "numpy"
Arrays = Sequence[NDArray]
Params = Mapping[str, Any]
Run = Callable[[Arrays, Arrays, Params], None]

# of 16-bit floats the column `numpy_call` says nothing; bools are no numbers to some of NumPy's functions
_NATIVE = frozenset((*dtypes.SIGNED, *dtypes.UNSIGNED, dtypes.float32, dtypes.float64, *dtypes.COMPLEX))


def reference_kernel(command: Command, specs: tuple[TensorSpec, ...], params: Params) -> Kernel:
    """Returns the kernel that runs the reference of `command`, or NumPy's function for it where that writes into its result.

    Example:
        >>> out = np.empty(2)
        >>> spec = TensorSpec((2,), "float64")
        >>> reference_kernel(command("add"), (spec, spec), {}).run([np.ones(2), np.ones(2)], [out], {})
        >>> out
        array([2., 2.])
    """
    return Kernel(BACKEND, _fast_run(command, specs, params) or _reference_run(command), priority=0)


def run_by_graph(inputs: Arrays, outputs: Arrays, params: Params) -> None:
    """The `run` of kernels of steps with a sub-graph, which are run by that where they are not compiled."""
    raise InternalError("a step with a sub-graph is run by its graph where it is not compiled")


def _reference_run(command: Command) -> Run:
    function = reference[command]

    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        store(command, function(*inputs, **params), outputs)

    return run


def _fast_run(command: Command, specs: tuple[TensorSpec, ...], params: Params) -> Run | None:
    """NumPy's own way to compute the command into its output; None where only the reference will do."""
    function: Callable[..., Any] | None = None
    if specs and specs[0].dtype in _NATIVE:
        function = ufunc_of(command, specs, params)
    if function is None and command in numpy_into:
        function = numpy_into[command](*specs, **params)
    if function is not None:
        return _writing(function)
    identity = in_place_of(command, params).identity
    if identity and command.outputs == 1:
        return lambda inputs, outputs, params: np.copyto(outputs[0], inputs[identity[0]])
    return None


def _writing(function: Callable[..., Any]) -> Run:
    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        function(*inputs, out=outputs[0])

    return run
