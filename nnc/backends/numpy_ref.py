"""The reference as a backend: runs any command through NumPy, writing into memory that is there already.

Commands that are one NumPy function write their result in place; the others copy what their reference returns.
Callers of these kernels silence NumPy's floating-point warnings around them, once for many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.casting import saturates
from nnc.graph import Command, Kernel, TensorSpec, find_kernel, kernel, reference
from nnc.lower.kernels import store
from nnc.lower.stages import NDArray

BACKEND = "numpy"
Arrays = Sequence[NDArray]
Params = Mapping[str, Any]
Run = Callable[[Arrays, Arrays, Params], None]

_UFUNCS: dict[str, np.ufunc] = {
    "neg": np.negative, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "reciprocal": np.reciprocal, "remainder": np.remainder, "fmod": np.fmod,
    "abs": np.absolute, "sign": np.sign, "square": np.square, "sqrt": np.sqrt, "cbrt": np.cbrt, "exp": np.exp,
    "exp2": np.exp2, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "hypot": np.hypot, "logaddexp": np.logaddexp, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "maximum": np.maximum, "minimum": np.minimum, "copysign": np.copysign,
    "nextafter": np.nextafter, "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
    "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal, "isnan": np.isnan,
    "isinf": np.isinf, "isfinite": np.isfinite, "signbit": np.signbit, "bitwise_not": np.invert,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip
_OWN_COMPLEX = frozenset({"tan", "tanh"})  # whose reference differs from NumPy's function at complex infinities
_COPIES = frozenset({"copy", "stop_gradient", "convert"})
_NATIVE = frozenset((*dtypes.SIGNED, *dtypes.UNSIGNED, dtypes.float32, dtypes.float64, *dtypes.COMPLEX))


def choose_kernel(command: Command, specs: tuple[TensorSpec, ...], params: Params) -> Kernel:
    """The best kernel that a backend has for these inputs, else the reference's.

    Raises:
        BackendError: the command has neither kernel nor reference.
    """
    return find_kernel(command, specs, params) or reference_kernel(command, specs, params)


def candidate_kernels(command: Command, specs: tuple[TensorSpec, ...], params: Params) -> list[Kernel]:
    """All kernels that take these inputs, first the one that `choose_kernel` names, last the reference's.

    Raises:
        BackendError: the command has neither kernel nor reference.
    """
    found = [candidate for candidate in kernel.get(command, ()) if candidate.supports(specs, params)]
    if not found:
        return [choose_kernel(command, specs, params)]
    if command in reference:
        found.append(reference_kernel(command, specs, params))
    return found


def reference_kernel(command: Command, specs: tuple[TensorSpec, ...], params: Params) -> Kernel:
    """The kernel that runs the reference of `command`, or NumPy's function for it where that writes into its result.

    Example:
        >>> out = np.empty(2)
        >>> spec = TensorSpec((2,), "float64")
        >>> reference_kernel(command("add"), (spec, spec), {}).run([np.ones(2), np.ones(2)], [out], {})
        >>> out
        array([2., 2.])
    """
    return Kernel(BACKEND, _fast_run(command.name, specs, params) or _reference_run(command), priority=0)


def _reference_run(command: Command) -> Run:
    function = reference[command]

    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        store(command, function(*inputs, **params), outputs)

    return run


def _fast_run(name: str, specs: tuple[TensorSpec, ...], params: Params) -> Run | None:
    """NumPy's own way to compute the command into its output; None where only the reference will do."""
    if (
        name in _UFUNCS
        and specs[0].dtype in _NATIVE
        and not (name in _OWN_COMPLEX and specs[0].dtype in dtypes.COMPLEX)
    ):
        return _unary(_UFUNCS[name]) if len(specs) == 1 else _binary(_UFUNCS[name])
    if name == "convert" and saturates(specs[0].dtype, dtypes.as_dtype(params["dtype"])):
        return None  # NumPy leaves numbers that do not fit undefined
    if name in _COPIES:
        return lambda inputs, outputs, params: np.copyto(outputs[0], inputs[0], casting="unsafe")
    if name == "reshape":
        return _reshape
    if name == "full":
        return lambda inputs, outputs, params: np.copyto(outputs[0], params["value"], casting="unsafe")
    if name == "concatenate":
        return _concatenate
    if name == "dot" and specs[0].dtype in (dtypes.float32, dtypes.float64, *dtypes.COMPLEX):
        return _matmul(specs, **params)
    return None


def _unary(function: np.ufunc) -> Run:
    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        function(inputs[0], out=outputs[0])

    return run


def _binary(function: np.ufunc) -> Run:
    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        function(inputs[0], inputs[1], out=outputs[0])

    return run


def _reshape(inputs: Arrays, outputs: Arrays, params: Params) -> None:
    (x,), (out,) = inputs, outputs
    if out.flags.c_contiguous:
        np.copyto(out.reshape(x.shape), x)
    else:  # a part of a larger tensor
        np.copyto(out, x.reshape(out.shape))


def _concatenate(inputs: Arrays, outputs: Arrays, params: Params) -> None:
    np.concatenate(inputs, params["axis"], out=outputs[0])


def _matmul(
    specs: tuple[TensorSpec, ...],
    *,
    contract: tuple[tuple[int, ...], tuple[int, ...]],
    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
) -> Run | None:
    """`dot` as one matmul, where both operands have one free and one contracted axis beside the batch."""
    x, y = specs
    free_x = [axis for axis in range(x.ndim) if axis not in (*batch[0], *contract[0])]
    free_y = [axis for axis in range(y.ndim) if axis not in (*batch[1], *contract[1])]
    if not len(free_x) == len(free_y) == len(contract[0]) == 1:
        return None
    left = (*batch[0], *free_x, *contract[0])
    right = (*batch[1], *contract[1], *free_y)
    if left == tuple(range(x.ndim)) and right == tuple(range(y.ndim)):
        return _binary(np.matmul)

    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        np.matmul(inputs[0].transpose(left), inputs[1].transpose(right), outputs[0])

    return run
