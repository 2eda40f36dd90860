"""Optimizers for parts of the parameters: some leaves moved by one, others by another, frozen, or as two real halves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, TreeError, user_error
from nnc.optim.arguments import Mask, check_state, is_trainable, mask_leaves, spread
from nnc.optim.base import GradientTransformation, check_transformation, extended, leafwise, run_update

__all__ = [
    "MaskedNode",
    "MaskedState",
    "PartitionState",
    "SplitRealAndImaginaryArrays",
    "SplitRealAndImaginaryState",
    "freeze",
    "masked",
    "multi_transform",
    "set_to_zero",
    "split_real_and_imaginary",
]


class MaskedNode(NamedTuple):
    """Stands in a tree for a leaf that is left out.

    Example:
        >>> nnc.tree.leaves({"kept": nnp.ones(2), "left_out": nnc.optim.MaskedNode()})
        [Array([1., 1.], dtype=float32)]
    """


class MaskedState(NamedTuple):
    """The state of the inner transformation.

    Attributes:
        inner_state: state of the inner transformation.

    Example:
        >>> state = nnc.optim.masked(nnc.optim.trace(0.9), True).init(nnp.ones(2))
        >>> state.inner_state
        TraceState(trace=Array([0., 0.], dtype=float32), count=())
    """

    inner_state: Any


def _keep(values: Any, chosen: list[bool]) -> Any:
    """`values` with a MaskedNode in place of each leaf that is not chosen."""
    leaves = [leaf if on else MaskedNode() for leaf, on in zip(tree.leaves(values), chosen, strict=True)]
    return tree.unflatten_like(values, leaves)


def _put_back(whole: Any, part: Any, chosen: list[bool]) -> Any:
    """`whole` with the leaves of `part` where they were chosen."""
    new = iter(tree.leaves(part))
    return tree.unflatten_like(
        whole, [next(new) if on else leaf for leaf, on in zip(tree.leaves(whole), chosen, strict=True)]
    )


def _update_part(
    inner: GradientTransformation, chosen: list[bool], updates: Any, state: Any, params: Any, extra: dict[str, Any]
) -> tuple[Any, Any]:
    """Returns the updates of all leaves, those chosen by `inner`, and the inner state."""
    kept = None if params is None else _keep(params, chosen)
    new, state = run_update(inner, _keep(updates, chosen), state, kept, extra)
    return _put_back(updates, new, chosen), state


@spelled
def masked(inner: GradientTransformation, mask: Mask) -> GradientTransformation:
    """Applies a transformation to some leaves; the updates of the others pass unchanged.

    Args:
        inner: a GradientTransformation.
        mask: a tree of bools like the parameters or a part of it from the root, or a function from parameters (and
            updates) to one; `inner` sees only leaves where it is True.

    Raises:
        ArgumentTypeError: inner is no transformation.
        TreeError: the mask does not fit.

    Example:
        >>> half = nnc.optim.masked(nnc.optim.scale(0.5), {"w": True, "b": False})
        >>> params = {"w": nnp.ones(1), "b": nnp.ones(1)}
        >>> half.update(params, half.init(params))[0]
        {'w': Array([0.5], dtype=float32), 'b': Array([1.], dtype=float32)}
    """
    check_transformation("masked", "inner", inner)

    def init_fn(params: Any) -> MaskedState:
        return MaskedState(inner.init(_keep(params, mask_leaves("masked", mask, params))))

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("masked", state, MaskedState)
        chosen = mask_leaves("masked", mask, updates)
        updates, inner_state = _update_part(inner, chosen, updates, state.inner_state, params, extra)
        return updates, MaskedState(inner_state)

    return extended(init_fn, update_fn, inner)


class PartitionState(NamedTuple):
    """The states of the inner transformations by label.

    Attributes:
        inner_states: {label: state}.

    Example:
        >>> optimizer = nnc.optim.multi_transform({"all": nnc.optim.trace(0.9)}, "all")
        >>> list(optimizer.init(nnp.ones(2)).inner_states)
        ['all']
    """

    inner_states: dict[str, Any]


Labels = Any  # a tree of labels like the parameters or a part of it from the root, or a function from parameters to one


@spelled
def multi_transform(transforms: Mapping[str, GradientTransformation], param_labels: Labels) -> GradientTransformation:
    """Gives each leaf to the transformation of its label: groups of parameters with optimizers or rates of their own.

    Args:
        transforms: {label: transformation}.
        param_labels: a tree of labels like the parameters or a part of it from the root, or a function from parameters
            (and updates) to one.

    Raises:
        ArgumentTypeError: a value is no transformation.
        TreeError: a leaf has no label, or an unknown one.

    Example:
        >>> optimizer = nnc.optim.multi_transform(
        ...     {"fast": nnc.optim.sgd(1.0), "frozen": nnc.optim.set_to_zero()}, {"head": "fast", "body": "frozen"}
        ... )
        >>> params = {"head": nnp.ones(1), "body": [nnp.ones(1), nnp.ones(1)]}
        >>> optimizer.update(params, optimizer.init(params))[0]
        {'head': Array([-1.], dtype=float32), 'body': [Array([0.], dtype=float32), Array([0.], dtype=float32)]}
    """
    where = "multi_transform"
    if not isinstance(transforms, Mapping):
        problem = f"transforms is a {type(transforms).__name__}, not a dict."
        advice = 'pass {"label": optimizer, ...}, and labels like the parameters.'
        raise user_error(ArgumentTypeError, where, problem, fix=advice)
    for label, transformation in transforms.items():
        check_transformation(where, f"transforms[{label!r}]", transformation)

    def labels_of(params: Any) -> list[Any]:
        fix = f"label each leaf, or a whole sub-tree, with one of {', '.join(map(repr, transforms))}."
        labels = spread(where, "param_labels", param_labels, params, _is_label, "a label", fix)
        for label in labels:
            if label is not None and label not in transforms:
                raise user_error(TreeError, where, f"the label {label!r} has no transformation.", fix=fix)
        return labels

    def init_fn(params: Any) -> PartitionState:
        labels = labels_of(params)
        return PartitionState(
            {
                group: inner.init(_keep(params, [label == group for label in labels]))
                for group, inner in transforms.items()
            }
        )

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, PartitionState)
        labels, states = labels_of(updates), {}
        for group, inner in transforms.items():
            chosen = [label == group for label in labels]
            updates, states[group] = _update_part(inner, chosen, updates, state.inner_states[group], params, extra)
        return updates, PartitionState(states)

    return extended(init_fn, update_fn, *transforms.values())


def _is_label(here: Any) -> bool:
    return isinstance(here, (str, int)) and not isinstance(here, bool)


@spelled
def set_to_zero() -> GradientTransformation:
    """Returns the transformation whose updates are 0: its parameters stay frozen.

    Example:
        >>> nnc.optim.set_to_zero().update(nnp.ones(2), nnc.optim.set_to_zero().init(nnp.ones(2)))[0]
        Array([0., 0.], dtype=float32)
    """
    return leafwise("set_to_zero", nnp.zeros_like)


@spelled
def freeze(mask: Mask) -> GradientTransformation:
    """Sets the updates to 0 where the mask is True; the last link of a chain.

    Args:
        mask: a tree of bools, or a function from parameters to one.

    Example:
        >>> optimizer = nnc.optim.chain(nnc.optim.sgd(1.0), nnc.optim.freeze({"w": True, "b": False}))
        >>> params = {"w": nnp.ones(1), "b": nnp.ones(1)}
        >>> optimizer.update(params, optimizer.init(params))[0]
        {'w': Array([0.], dtype=float32), 'b': Array([-1.], dtype=float32)}
    """
    return masked(set_to_zero(), mask)


# -- complex parameters ------------------------------------------------------------------------------------------------


class SplitRealAndImaginaryArrays(NamedTuple):
    """Stands for a complex leaf.

    Attributes:
        real: real part.
        imaginary: imaginary part.

    Example:
        >>> state = nnc.optim.split_real_and_imaginary(nnc.optim.trace(0.9)).init(nnp.asarray([1j]))
        >>> state.inner_state.trace.real
        Array([0.], dtype=float32)
    """

    real: Any
    imaginary: Any


class SplitRealAndImaginaryState(NamedTuple):
    """The state of the inner transformation.

    Attributes:
        inner_state: state of the inner transformation.

    Example:
        >>> state = nnc.optim.split_real_and_imaginary(nnc.optim.trace(0.9)).init(nnp.ones(2))
        >>> state.inner_state
        TraceState(trace=Array([0., 0.], dtype=float32), count=())
    """

    inner_state: Any


def _split(values: Any) -> Any:
    def halves(x: Any) -> Any:
        if not (is_trainable(x) and dtypes.is_complex(asarray(x).dtype)):
            return x
        x = asarray(x)
        return SplitRealAndImaginaryArrays(x.real, x.imag)

    return tree.map(halves, values)


def _join(values: Any) -> Any:
    def whole(x: Any) -> Any:
        return _complex(x.real, x.imaginary) if isinstance(x, SplitRealAndImaginaryArrays) else x

    return tree.map(whole, values, is_leaf=lambda x: isinstance(x, SplitRealAndImaginaryArrays))


def _complex(real: Array, imaginary: Array) -> Array:
    return real + imaginary * 1j


@spelled
def split_real_and_imaginary(inner: GradientTransformation) -> GradientTransformation:
    """Applies a transformation to the real and the imaginary parts of complex leaves as if they were two parameters.

    So do the optimizers of torch. Without it Adam and its relatives divide a complex gradient by its magnitude, as in Optax.

    Args:
        inner: a GradientTransformation.

    Example:
        >>> optimizer = nnc.optim.split_real_and_imaginary(nnc.optim.adam(1.0))
        >>> g = nnp.asarray(np.array([3 + 4j]))
        >>> nnp.round(optimizer.update(g, optimizer.init(g), g)[0], 3)
        Array([-1.-1.j], dtype=complex128)
    """
    check_transformation("split_real_and_imaginary", "inner", inner)

    def init_fn(params: Any) -> SplitRealAndImaginaryState:
        return SplitRealAndImaginaryState(inner.init(_split(params)))

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("split_real_and_imaginary", state, SplitRealAndImaginaryState)
        halves = None if params is None else _split(params)
        new, inner_state = run_update(inner, _split(updates), state.inner_state, halves, extra)
        return _join(new), SplitRealAndImaginaryState(inner_state)

    return extended(init_fn, update_fn, inner)
