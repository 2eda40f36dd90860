"""The rules of a command, which `register` takes, and the forms of its cells.

Values in rules are arrays or tracers and support NumPy operators; a tangent or cotangent that is zero by construction is `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nnc.graph.spec import TensorSpec

__all__ = ["AsView", "Derivative", "InPlace", "Linear", "Rules"]

Value = Any  # an array or a tracer
Tangents = tuple[Value | None, ...]
Cotangents = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """Stands, in a transpose rule, for an operand in which the node is linear; it has a spec but no value.

    Attributes:
        spec: the spec of the operand.

    Example:
        >>> Linear(TensorSpec((2,), "float32")).spec.shape
        (2,)
    """

    spec: TensorSpec


# `(*specs, [graphs,] **params) -> spec or tuple of specs`; raises a user error for operands that the command does not take.
Infer = Callable[..., TensorSpec | tuple[TensorSpec, ...]]

# `(*numpy arrays, **params) -> array or tuple`. A command with sub-graphs also gets `graphs` and
# `run(graph, arrays) -> list of arrays`.
Reference = Callable[..., Any]


class JvpRule(Protocol):
    """The rule of forward mode, for values of operands and results and tangents of operands."""

    def __call__(
        self, primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], /, *args: Any, **params: Any
    ) -> Tangents:
        """Returns the tangents of the outputs.

        Values of `primals` and `outputs` that a rule does not touch are not kept for the backward pass. Commands with sub-graphs
        get `graphs=` among the params.
        """


class TransposeRule(Protocol):
    """The rule of reverse mode, for a command that is linear in some operand."""

    def __call__(
        self, cotangents: Cotangents, operands: tuple[Value | Linear, ...], /, *args: Any, **params: Any
    ) -> Tangents:
        """Returns cotangents of the operands, None where none is wanted.

        `operands` holds `Linear` where one is wanted, and a value elsewhere. Of a command with sub-graphs a cotangent may be None.
        """


class DualRule(Protocol):
    """The rule of a command with sub-graphs, for its operands and their tangents."""

    def __call__(
        self, primals: tuple[Value, ...], tangents: Tangents, /, *args: Any, **params: Any
    ) -> tuple[Sequence[Value], Tangents]:
        """Returns the outputs and their tangents."""


class BatchRule(Protocol):
    """The rule of `vmap`, for operands that have a batch axis, which is their first, and operands that do not."""

    def __call__(
        self, size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], /, *args: Any, **params: Any
    ) -> tuple[Sequence[Value], Sequence[bool]]:
        """Returns the outputs, and which of them have a batch axis."""


@dataclass(frozen=True, slots=True)
class Derivative:
    """The differentiation rules of a command.

    Attributes:
        jvp: the tangents of the outputs, by ordinary commands, so that derivatives of every order exist.
        transpose: the cotangents of the operands, for commands that are linear in some operand.
        push: in place of `jvp`, the forward mode of a command with sub-graphs.
        linearize: likewise, for reverse mode.

    Example:
        >>> Derivative(lambda primals, tangents, outputs: (tangents[0] * 2,)).jvp((1.0,), (3.0,), (2.0,))
        (6.0,)
    """

    jvp: JvpRule | None = None
    transpose: TransposeRule | None = None
    push: DualRule | None = None
    linearize: DualRule | None = None


@dataclass(frozen=True, slots=True)
class InPlace:
    """The memory that results may share with operands.

    Attributes:
        overwrite: pairs (input, output) that may share memory.
        identity: inputs equal to output 0.

    Example:
        >>> InPlace(overwrite=((0, 0),)).identity
        ()
    """

    overwrite: tuple[tuple[int, int], ...] = ()
    identity: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AsView:
    """Says that output 0 is a view of input 0.

    Attributes:
        axes: (spec, out, **params) -> pairs (axis of the input, axis of the output) along which the view shows each element of its
            input; it repeats them along other axes, or where sizes differ. None where axes are merged or cut.

    Example:
        >>> AsView(lambda spec, out: [(0, 1), (1, 0)]).axes(None, None)
        [(0, 1), (1, 0)]
    """

    axes: Callable[..., Sequence[tuple[int, int]] | None] | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The properties of a command that nnc asks for. Each field is also a column of that name, which any package can fill later.

    Attributes:
        infer: the specs of the results, for specs of operands.
        reference: the definition of the command, on NumPy arrays.
        derivative: how it is differentiated.
        batch: how it runs over a leading batch axis.
        alias: the result is a view.
        joined: (*specs, **params) -> the place in the result where each operand begins, of commands that put operands together:
            these do not overlap, and the result is 0 where none of them lies.
        inplace: which inputs it may overwrite, pass on or ignore; a function of the params where they tell.
        scalar: the scalar expression that code generators print.
        exact: nothing is rounded: the scalar expression takes 16-bit floats as they are, and not in float32.
        commutes: exchanging the two operands changes no bit of the result.
        cost: (*specs, **params) -> floating-point operations.
        weight: work for one element of the result of an elementwise command that takes an instruction or two: 1 for work that is
            done while a kernel waits for memory, so that it is no more than a read, else 2. Commands without one are expensive.
        effect: for commands whose nodes must not be merged: 'random'; 'host' of users' functions without effects, which run in the
            caller's thread; 'debug' and others, which are not removed either.
        refuses: (*specs, **params) -> whether it raises on some values of its operands. False: it is known that it never does,
            as it is of elementwise commands, views, reductions and joins.
        numpy_call: NumPy's function that is the command and broadcasts, or (*specs, **params) -> a function of the arrays that is
            the command in one call of NumPy, None where none is; of 16-bit floats nothing is said.
        any_arrays: the reference takes arrays of other libraries, such as CuPy, that take part in NumPy's functions.

    Example:
        >>> Rules(infer=lambda x: x, reference=np.negative).infer(TensorSpec((2,), "float32")).shape
        (2,)
    """

    infer: Infer | None = None
    reference: Reference | None = None
    derivative: Derivative | None = None
    batch: BatchRule | None = None
    alias: AsView | None = None
    joined: Callable[..., Sequence[tuple[int, ...]]] | None = None
    inplace: InPlace | Callable[[Mapping[str, Any]], InPlace] | None = None
    scalar: str | None = None
    exact: bool = False
    commutes: bool = False
    cost: Callable[..., int] | None = None
    weight: int | None = None
    effect: str | None = None
    refuses: bool | Callable[..., bool] | None = None
    numpy_call: np.ufunc | Callable[..., Callable[..., Any] | None] | None = None
    any_arrays: bool = False
