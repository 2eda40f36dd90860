"""Tracers: objects that stand for a value while a function is traced."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import numpy as np

from nnc.array.array import Array, concrete_error, numpy_error
from nnc.array.operators import ArrayMethods
from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.silence import silently
from nnc.base.source import SourceLine, user_source
from nnc.device import CPU
from nnc.errors import TraceError, hash_remedy, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph import TensorSpec
from nnc.graph.dispatch import escaped_tracer

NDArray = np.ndarray[Any, Any]


class Tracer(ArrayMethods):
    """A value of a trace. Subclasses define its parts; `concrete` gives its value where it has one."""

    __slots__ = ("owner", "source", "spec", "weak")

    def __init__(self, trace: Any, spec: TensorSpec, source: SourceLine | None, weak: dtypes.Weakness = False) -> None:
        self.owner, self.spec, self.source, self.weak = trace, spec, source, weak

    def concrete(self, what: str, fix: str = "") -> NDArray:
        """Returns the value as a NumPy array.

        Raises:
            TraceError: the tracer is abstract.
        """
        if not self.owner.alive:
            raise escaped_tracer(self)
        raise concrete_error(self, what, fix)

    @property
    def held(self) -> Array | None:
        """The array that it stands for, if that is known and stays so until it is written to; None for values of a trace."""
        return None

    @property
    def device(self) -> str:
        """The device of the compiled function that is being traced, else of the function's arguments."""
        context = get_context()
        if context.program is not None:
            return context.program.device
        return CPU if context.device is None else str(context.device.device.name)

    def varying_over(self) -> Any:
        """Returns the named axes over which it varies (nnc.trace.core.axes); None where its trace does not know."""
        return frozenset()

    def block_until_ready(self) -> Tracer:
        """Does nothing: a traced value is not computed yet."""
        return self

    @api_boundary
    def item(self, *index: int) -> Any:
        """Returns the one element as a Python number, or the element at an index, where the value is known."""
        value = super().item(*index)
        self._warn_constant("item")
        return value

    @api_boundary
    def __float__(self) -> float:
        value = super().__float__()
        self._warn_constant("float")
        return value

    @api_boundary
    def __complex__(self) -> complex:
        value = super().__complex__()
        self._warn_constant("complex")
        return value

    def _warn_constant(self, target: str) -> None:
        """A number taken out of a derivative is a constant of it, which is easily a mistake (`math.sin(x)`)."""
        if self.owner.differentiates and dtypes.is_inexact(self.dtype):
            where = user_source()
            warnings.warn_explicit(
                f"{target}(x) of a value that is being differentiated is a constant: no derivative flows through it. Use nnc.numpy "
                f"instead of math, or {target}(nnc.stop_gradient(x)) where none is wanted.",
                UserWarning,
                where.file if where else "<unknown>",
                where.line if where else 0,
            )

    @api_boundary
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        if self.owner.alive and self.owner.differentiates and dtypes.is_inexact(self.dtype):
            raise numpy_error(self)
        value = self.concrete("conversion to a NumPy array")
        if dtype is None and self.weak is dtypes.NUMBER:
            value = silently(value.astype, self.dtype)  # a number too large for a float is infinite
        return np.array(value, dtype=dtype) if copy else np.asarray(value, dtype=dtype)

    @api_boundary
    def __hash__(self) -> int:  # type: ignore[override]  # of ArrayMethods, which have none
        problem = (
            f"a traced array ({self.shown}) has no hash: it is no key of a dict, no member of a set and no argument of a cached "
            "function."
        )
        raise user_error(TraceError, "hash", problem, fix=hash_remedy(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown})"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __copy__(self) -> Tracer:
        twin = object.__new__(type(self))
        for cls in type(self).__mro__:
            for name in getattr(cls, "__slots__", ()):
                setattr(twin, name, getattr(self, name))
        return twin

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self.__copy__()

    @api_boundary
    def __reduce__(self) -> NoReturn:
        fix = "return it from the traced function and store the result."
        raise user_error(TraceError, "pickle", f"{self.shown} is a traced value, which cannot be stored.", fix=fix)
