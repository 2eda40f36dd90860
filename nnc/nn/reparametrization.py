"""Layers around another layer, whose weights they compute anew in each call: spectral and weight normalisation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.commands.rules import check_axis
from nnc.errors import ArgumentError, ArgumentTypeError, TreeError, user_error
from nnc.errors.errors import check_count
from nnc.graph import spec_of
from nnc.nn.convolution import ConvTranspose
from nnc.nn.module import Module, field
from nnc.nn.paths import assign, parameters
from nnc.nn.running import is_stateful, takes_key
from nnc.trace.core.differentiate import stop_gradient
from nnc.typing import ArrayLike

__all__ = ["SpectralNorm", "WeightNorm"]

FIRST_STEPS = 15  # of the power iteration when a layer is made, as in PyTorch


class SpectralNorm(Module):
    """A layer with its weight divided by its largest singular value (Miyato et al., 2018), which bounds its Lipschitz constant.

    The singular value is that of a matrix whose rows are the elements of `axis`. Power iteration finds it: each call in training
    takes `steps` more from the vectors of the last call, so it returns (output, new self), as BatchNorm does (see nnc.nn.Run).

    Args:
        layer: a module with a weight.
        key: the key for the initial vectors.
        name: path of the weight in the layer.
        steps: the number of steps of the power iteration in a call.
        axis: axis of outputs in the weight; by default 0, and 1 of ConvTranspose.
        eps: least norm that vectors are divided by.
        inference: whether the vectors stay as they are.

    Raises:
        TreeError: (when made) the layer has no parameter of that name.
        ArgumentError: (when made) `steps` is not positive, or the weight has no axes or no elements.

    Example:
        >>> layer = nnc.nn.SpectralNorm(nnc.nn.Linear(3, 4, key=nnc.random.key(0)), key=nnc.random.key(1))
        >>> out, layer = layer(np.ones((5, 3), np.float32))
        >>> out.shape, bool(abs(nnp.linalg.norm(layer.merged().weight, 2) - 1) < 1e-2)
        ((5, 4), True)
    """

    layer: Any
    left: Array = field(state=True)
    right: Array = field(state=True)
    name: str
    steps: int
    axis: int
    eps: float
    inference: bool

    @spelled
    def __init__(
        self,
        layer: Module,
        *,
        key: ArrayLike,
        name: str = "weight",
        steps: int = 1,
        axis: int | None = None,
        eps: float = 1e-12,
        inference: bool = False,
    ) -> None:
        where = "SpectralNorm"
        weight = _weight(where, layer, name)
        check_count(where, "steps", steps, "pass a positive number of steps.")
        self.axis = check_axis(where, _axis_of_outputs(layer) if axis is None else axis, weight.ndim)
        self.layer, self.name, self.steps, self.eps, self.inference = layer, name, steps, eps, inference
        rows = weight.shape[self.axis]
        for_left, for_right = random.split(key)
        self.left = random.normal(for_left, (rows,), weight.dtype)
        self.right = random.normal(for_right, (weight.size // rows,), weight.dtype)
        self.left, self.right = self._iterated(FIRST_STEPS)

    def __call__(self, *args: Any, key: ArrayLike | None = None, **options: Any) -> tuple[Any, SpectralNorm]:
        """Calls the layer with the normalised weight.

        Returns:
            the output, and the layer with new vectors.
        """
        left, right = (self.left, self.right) if self.inference else self._iterated(self.steps)
        new = self.replace(left=left, right=right)
        out, layer = _call(self.layer, {self.name: new._normalised()}, args, key, options)
        return out, new.replace(layer=layer)

    def merged(self) -> Any:
        """Returns the layer with the normalised weight in place of its own."""
        return assign(self.layer, {self.name: self._normalised()})

    def _matrix(self) -> Array:
        """Returns the weight with its outputs as rows."""
        weight = nnp.moveaxis(_weight("SpectralNorm", self.layer, self.name), self.axis, 0)
        return nnp.reshape(weight, (weight.shape[0], -1))

    def _iterated(self, steps: int) -> tuple[Array, Array]:
        """Returns the vectors after some steps of the power iteration, as constants."""
        matrix, left, right = stop_gradient(self._matrix()), self.left, self.right
        for _ in range(steps):
            left = _unit(matrix @ right, self.eps)
            right = _unit(matrix.T @ left, self.eps)
        return stop_gradient((left, right))

    def _normalised(self) -> Array:
        matrix, (left, right) = self._matrix(), stop_gradient((self.left, self.right))
        return _weight("SpectralNorm", self.layer, self.name) / (left @ (matrix @ right))


class WeightNorm(Module):
    """A layer with its weight as the product of a length and a direction for each output (Salimans and Kingma, 2016).

    weight[i] = scale[i] · direction[i] / ‖direction[i]‖

    The layer's own weight is the direction. At first the product is the weight that the layer had.

    Args:
        layer: a module with a weight.
        name: path of the weight in the layer.
        axis: axis of outputs in the weight; by default 0, and 1 of ConvTranspose. "all" takes one length for the whole weight.

    Raises:
        TreeError: (when made) the layer has no parameter of that name.

    Example:
        >>> linear = nnc.nn.Linear(3, 4, key=nnc.random.key(0))
        >>> layer = nnc.nn.WeightNorm(linear)
        >>> layer.scale.shape, bool(nnp.allclose(layer(nnp.ones(3)), linear(nnp.ones(3))))
        ((4, 1), True)
    """

    layer: Any
    scale: Array
    name: str
    axis: int | str

    @spelled
    def __init__(self, layer: Module, *, name: str = "weight", axis: int | str | None = None) -> None:
        weight = _weight("WeightNorm", layer, name)
        if isinstance(axis, str) and axis != "all":
            raise user_error(ArgumentError, "WeightNorm", f"axis is {axis!r}.", fix='pass an axis, or "all".')
        if axis is None:
            axis = _axis_of_outputs(layer)
        self.axis = axis if isinstance(axis, str) else check_axis("WeightNorm", axis, weight.ndim)
        self.layer, self.name = layer, name
        self.scale = self._lengths()

    def __call__(self, *args: Any, key: ArrayLike | None = None, **options: Any) -> Any:
        """Calls the layer with the product of length and direction as its weight; of a stateful layer, (output, new self)."""
        out, layer = _call(self.layer, {self.name: self._product()}, args, key, options)
        return (out, self.replace(layer=layer)) if is_stateful(self.layer) else out

    def merged(self) -> Any:
        """Returns the layer with the product in place of its own weight."""
        return assign(self.layer, {self.name: self._product()})

    def _lengths(self) -> Array:
        weight = _weight("WeightNorm", self.layer, self.name)
        axes = tuple(axis for axis in range(weight.ndim) if axis != self.axis)
        return nnp.linalg.vector_norm(weight, axis=axes, keepdims=self.axis != "all")

    def _product(self) -> Array:
        return _weight("WeightNorm", self.layer, self.name) * (self.scale / self._lengths())


def _weight(where: str, layer: Any, name: str) -> Array:
    if not isinstance(layer, Module):
        problem = f"its first argument is a {type(layer).__name__}, not a module."
        fix = f"pass the layer itself: {where}(nnc.nn.Linear(3, 4, key=key))."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)
    found = parameters(layer)
    if name not in found:
        fix = f"name one of its parameters: {', '.join(found)}." if found else "pass a layer with parameters."
        raise user_error(TreeError, where, f"{type(layer).__name__} has no parameter {name!r}.", fix=fix)
    weight = found[name]
    if not weight.ndim or not math.prod(weight.shape):
        problem = f"{name} has no axes or no elements."
        fix = "name a weight with an axis of outputs."
        raise user_error(ArgumentError, where, problem, operands={name: spec_of(weight)}, fix=fix)
    return weight


def _axis_of_outputs(layer: Any) -> int:
    return 1 if isinstance(layer, ConvTranspose) else 0


def _unit(x: Array, eps: float) -> Array:
    return x / nnp.maximum(nnp.linalg.vector_norm(x), eps)


def _call(
    layer: Any, values: Mapping[str, Array], args: tuple[Any, ...], key: Any, options: dict[str, Any]
) -> tuple[Any, Any]:
    """Returns the output of a layer with other weights, and the layer with its new state and the weights that it had."""
    if takes_key(layer):
        options["key"] = key
    out = assign(layer, values)(*args, **options)
    if not is_stateful(layer):
        return out, layer
    return out[0], assign(out[1], {name: parameters(layer)[name] for name in values})
