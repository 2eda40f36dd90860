"""Recurrent layers: cells that advance by one step, and layers that scan them over time.

Weights have PyTorch's layout: `weight_ih` (gates · hidden, in), `weight_hh` (gates · hidden, hidden) and a bias for each, the
gates of an LSTM in the order input, forget, cell, output, the gates of a GRU in the order reset, update, new. The inputs' part
of the gates is computed for all steps at once, so the scan holds one product with `weight_hh` for each step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import nnc.numpy as nnp
from nnc import random, tree
from nnc.array.array import Array
from nnc.array.promote import dtype_of
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.errors import check_count
from nnc.graph import spec_of
from nnc.nn import activations
from nnc.nn.layers import check_features, draw_weights
from nnc.nn.module import Module, field
from nnc.nn.ranges import read_lengths
from nnc.nn.stochastic import dropout
from nnc.numpy.operands import to_value
from nnc.trace.loops.control_flow import scan
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "LSTMState", "RNNCell"]


class LSTMState(NamedTuple):
    """The state of an LSTM: its output, and the cell that only it sees.

    Attributes:
        hidden: (..., hidden_features), the output.
        cell: (..., hidden_features).

    Example:
        >>> LSTMState(nnp.zeros(2), nnp.ones(2)).hidden
        Array([0., 0.], dtype=float32)
    """

    hidden: Array
    cell: Array


State = TypeVar("State")  # of a cell: an array, or an LSTMState


class _Cell(Module, Generic[State]):
    """One step of a recurrent layer: `project` computes the inputs' part of the gates, `step` the rest."""

    weight_ih: Array
    weight_hh: Array
    bias_ih: Array | None
    bias_hh: Array | None
    in_features: int
    hidden_features: int
    gates: ClassVar[int] = 1

    @spelled
    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: ArrayLike,
        use_bias: bool = True,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        rows = self.gates * hidden_features
        bias_shape = (rows,) if use_bias else None
        keys = random.split(key)
        self.weight_ih, self.bias_ih = draw_weights(keys[0], (rows, in_features), bias_shape, hidden_features, dtype)
        self.weight_hh, self.bias_hh = draw_weights(
            keys[1], (rows, hidden_features), bias_shape, hidden_features, dtype
        )
        self.in_features, self.hidden_features = in_features, hidden_features

    def __call__(self, x: ArrayLike, state: State | None = None) -> State:
        """(..., in_features) and a state -> the next state; without a state it starts from zeros."""
        gates = self.project(x)
        return self.step(gates, self.read_state(state, gates))

    def project(self, x: ArrayLike) -> Array:
        """(..., in_features) -> (..., gates · hidden_features).

        Args:
            x: (..., in_features).
        """
        out = check_features(type(self).__name__, x, self.in_features) @ self.weight_ih.T
        return out if self.bias_ih is None else out + self.bias_ih

    def initial_state(self, gates: Array) -> Any:
        """Zeros with the batch axes and the dtype of the result of `project`.

        Args:
            gates: the input's part of the gates, whose batch axes and dtype the state has.
        """
        return nnp.zeros((*gates.shape[:-1], self.hidden_features), dtype_of(gates))

    def read_state(self, state: Any, gates: Array) -> Any:
        """Returns a state that was given, or the initial one.

        Args:
            state: the state that was given, or None.
            gates: the input's part of the gates.
        """
        start = self.initial_state(gates)
        if state is None:
            return start
        parts = (state,) if not isinstance(start, LSTMState) else state if isinstance(state, (tuple, list)) else ()
        values = [to_value(part, type(self).__name__, "part") for part in parts]
        wanted = [part.shape for part in tree.leaves(start)]
        if [value.shape for value in values] != wanted:
            name = "LSTMState(hidden, cell)" if isinstance(start, LSTMState) else "an array"
            problem = f"the state must be {name} of shape {wanted[0]}."
            operands = {"gates": spec_of(gates), **{f"state {i}": spec_of(value) for i, value in enumerate(values)}}
            fix = "give the state the batch axes of the input, and hidden_features."
            raise user_error(ShapeError, type(self).__name__, problem, operands=operands, fix=fix)
        return LSTMState(*values) if isinstance(start, LSTMState) else values[0]

    @abstractmethod
    def step(self, gates: Array, state: State) -> State:
        """Returns the next state.

        Args:
            gates: the input's part of the gates.
            state: the state before.
        """

    def _recur(self, hidden: Array) -> Array:
        out = check_features(type(self).__name__, hidden, self.hidden_features) @ self.weight_hh.T
        return out if self.bias_hh is None else out + self.bias_hh


class RNNCell(_Cell[Array]):
    """h' = tanh(W_ih · x + b_ih + W_hh · h + b_hh) (Elman, 1990).

    Args:
        in_features: size of the last axis of the input.
        hidden_features: size of the last axis of the state.
        key: the key for the weights, uniform in ±1 / sqrt(hidden_features).
        activation: the activation of the new state.
        use_bias: whether there are biases.
        dtype: dtype of the weights.

    Example:
        >>> nnc.nn.RNNCell(3, 4, key=nnc.random.key(0))(np.ones((2, 3), np.float32)).shape
        (2, 4)
    """

    activation: Callable[[Array], Array] = field(static=True, default=nnp.tanh)

    @spelled
    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: ArrayLike,
        activation: Callable[[Array], Array] = nnp.tanh,
        use_bias: bool = True,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        super().__init__(in_features, hidden_features, key=key, use_bias=use_bias, dtype=dtype)
        self.activation = activation

    def step(self, gates: Array, state: Array) -> Array:
        """Returns the next hidden state.

        Args:
            gates: the input's part of the gates, (..., gates · hidden_features).
            state: (..., hidden_features).
        """
        return self.activation(gates + self._recur(state))


class LSTMCell(_Cell[LSTMState], init=False):
    """i, f, g, o = W_ih · x + b_ih + W_hh · h + b_hh; c' = σ(f) · c + σ(i) · tanh(g); h' = σ(o) · tanh(c') (Gers et al., 2000).

    Args:
        in_features: size of the last axis of the input.
        hidden_features: size of the last axis of the state.
        key: the key for the weights, uniform in ±1 / sqrt(hidden_features).
        use_bias: whether there are biases.
        dtype: dtype of the weights.

    Example:
        >>> state = nnc.nn.LSTMCell(3, 4, key=nnc.random.key(0))(np.ones((2, 3), np.float32))
        >>> state.hidden.shape, state.cell.shape
        ((2, 4), (2, 4))
    """

    gates: ClassVar[int] = 4

    def initial_state(self, gates: Array) -> LSTMState:
        """Zeros for hidden and cell.

        Args:
            gates: the input's part of the gates, whose batch shape the state has.
        """
        zeros = super().initial_state(gates)
        return LSTMState(zeros, zeros)

    def step(self, gates: Array, state: LSTMState) -> LSTMState:
        """Returns the next hidden and cell.

        Args:
            gates: the input's part of the gates, (..., 4 · hidden_features).
            state: the LSTMState before.
        """
        hidden, cell = state
        enter, forget, new, leave = nnp.split(gates + self._recur(hidden), 4, axis=-1)
        cell = activations.sigmoid(forget) * cell + activations.sigmoid(enter) * nnp.tanh(new)
        return LSTMState(activations.sigmoid(leave) * nnp.tanh(cell), cell)


class GRUCell(_Cell[Array], init=False):
    """r, z = σ(W_ih · x + W_hh · h + b); n = tanh(W_in · x + b_in + r · (W_hn · h + b_hn)); h' = (1 - z) · n + z · h.

    The form of Cho et al. (2014) in which the reset gate acts after the product, as in cuDNN and PyTorch.

    Args:
        in_features: size of the last axis of the input.
        hidden_features: size of the last axis of the state.
        key: the key for the weights, uniform in ±1 / sqrt(hidden_features).
        use_bias: whether there are biases.
        dtype: dtype of the weights.

    Example:
        >>> nnc.nn.GRUCell(3, 4, key=nnc.random.key(0))(np.ones((2, 3), np.float32)).shape
        (2, 4)
    """

    gates: ClassVar[int] = 3

    def step(self, gates: Array, state: Array) -> Array:
        """Returns the next hidden state.

        Args:
            gates: the input's part of the gates, (..., 3 · hidden_features).
            state: (..., hidden_features).
        """
        (reset, update, new), (from_reset, from_update, from_new) = (
            nnp.split(part, 3, axis=-1) for part in (gates, self._recur(state))
        )
        new = nnp.tanh(new + activations.sigmoid(reset + from_reset) * from_new)
        update = activations.sigmoid(update + from_update)
        return (1 - update) * new + update * state


class _Recurrent(Module, Generic[State]):
    """Layers of cells, each scanned over time; with `bidirectional` a second cell runs from the end."""

    layers: tuple[tuple[Any, ...], ...]  # for each layer the forward cell, and the backward one where there is one
    dropout_rate: float
    inference: bool
    cell: ClassVar[type[_Cell[Any]]]

    @spelled
    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: ArrayLike,
        num_layers: int = 1,
        bidirectional: bool = False,
        use_bias: bool = True,
        dropout_rate: float = 0.0,
        inference: bool = False,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self._set_up((in_features, hidden_features), key, num_layers, bidirectional, dropout_rate, inference,
                     use_bias=use_bias, dtype=dtype)  # fmt: skip

    def _set_up(
        self, features: tuple[int, int], key: ArrayLike, num_layers: int, bidirectional: bool, dropout_rate: float,
        inference: bool, **options: Any,
    ) -> None:  # fmt: skip
        """Assigns the fields; `options` are those of the cells."""
        ways = 2 if bidirectional else 1
        check_count(type(self).__name__, "num_layers", num_layers, "use 1 layer or more.")
        keys = random.split(key, (num_layers, ways))
        sizes = (features[0], *(ways * features[1],) * (num_layers - 1))
        self.layers = tuple(
            tuple(self.cell(size, features[1], key=keys[i, j], **options) for j in range(ways))
            for i, size in enumerate(sizes)
        )
        self.dropout_rate, self.inference = dropout_rate, inference

    def __call__(
        self,
        x: ArrayLike,
        initial: Any = None,
        *,
        lengths: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        key: ArrayLike | None = None,
    ) -> tuple[Array, tuple[tuple[State, ...], ...]]:
        """Runs over the axis before the last.

        Args:
            x: (..., T, in_features).
            initial: a state for each layer and direction, as the call returns them; zeros by default.
            lengths: (...,), how many steps each sequence has.
            mask: (..., T), False where a step is left out: the state stays, the output is 0.
            key: the key for dropout between the layers.

        Returns:
            the outputs, (..., T, hidden_features), twice as many with both directions; and the states after the last
            step, a tuple with a tuple for each layer, of a state for each direction.

        Raises:
            ShapeError: x, lengths or mask have other shapes.
            ArgumentError: lengths and mask are both given, or initial has other than a state for each layer and
                direction.
        """
        x = to_value(x, type(self).__name__)
        if x.ndim < 2:
            problem = "the input has no time axis."
            fix = "pass an input of shape (..., T, in_features)."
            raise user_error(ShapeError, type(self).__name__, problem, operands={"x": spec_of(x)}, fix=fix)
        valid = _validity(type(self).__name__, x, lengths, mask)
        if valid is not None:  # the gradient of the weights would be 0 times NaN, if that is the padding
            x = nnp.where(nnp.moveaxis(valid, 0, -2), x, 0)
        states = []
        for i, cells in enumerate(self.layers):
            if i and self.dropout_rate and not self.inference:
                x = dropout(None if key is None else random.fold_in(key, i), x, self.dropout_rate)
            runs = [self._run(i, j, cell, x, initial, valid) for j, cell in enumerate(cells)]
            x = runs[0][0] if len(runs) == 1 else nnp.concatenate([out for out, _ in runs], axis=-1)
            states.append(tuple(state for _, state in runs))
        return x, tuple(states)

    def _run(self, i: int, j: int, cell: _Cell[Any], x: Array, initial: Any, valid: Array | None) -> tuple[Array, Any]:
        """Returns the outputs and the last state of a cell; direction 1 runs from the end."""
        gates = nnp.moveaxis(cell.project(x), -2, 0)
        state = cell.read_state(None if initial is None else self._pick(initial, i, j), gates[0])

        def advance(state: Any, row: Any) -> tuple[Any, Array]:
            new = cell.step(row[0], state)
            hidden = new.hidden if isinstance(new, LSTMState) else new
            if valid is None:
                return new, hidden
            kept = _where(row[1], new, state)
            return kept, nnp.where(row[1], hidden, nnp.zeros_like(hidden))

        state, outputs = scan(advance, state, (gates, valid), reverse=j == 1)
        return nnp.moveaxis(outputs, 0, -2), state

    def _pick(self, initial: Any, i: int, j: int) -> Any:
        ways = len(self.layers[0])
        layers = initial if isinstance(initial, (tuple, list)) else ()
        if len(layers) != len(self.layers) or any(
            not isinstance(states, (tuple, list)) or isinstance(states, LSTMState) or len(states) != ways
            for states in layers
        ):
            problem = f"initial has not {ways} states for each of {len(self.layers)} layers."
            fix = "pass the states that an earlier call returned: ((state,), ...), or ((forward, backward), ...)."
            raise user_error(ArgumentError, type(self).__name__, problem, fix=fix)
        return initial[i][j]


def _validity(where: str, x: Array, lengths: Any, mask: Any) -> Array | None:
    """(T, ..., 1) bools: whether a step counts."""
    if lengths is None and mask is None:
        return None
    if lengths is not None and mask is not None:
        raise user_error(ArgumentError, where, "lengths and mask are both given.", fix="pass one of them.")
    if mask is None:
        steps = x.shape[-2]
        valid = nnp.arange(steps) < read_lengths(where, "lengths", lengths, x.shape[:-2], steps)[..., None]
    else:
        valid = nnp.asarray(mask)
    if valid.shape != x.shape[:-1] or not dtypes.is_bool(valid.dtype):
        problem = f"mask must be bools of shape {x.shape[:-1]}."
        fix = "pass a bool for each step."
        raise user_error(ShapeError, where, problem, operands={"x": spec_of(x), "mask": spec_of(valid)}, fix=fix)
    return nnp.moveaxis(valid, -1, 0)[..., None]


def _where(valid: Array, new: Any, old: Any) -> Any:
    if isinstance(new, LSTMState):
        return LSTMState(*(nnp.where(valid, n, o) for n, o in zip(new, old, strict=True)))
    return nnp.where(valid, new, old)


class RNN(_Recurrent[Array]):
    """Layers of RNNCell over time.

    Args:
        in_features: size of the last axis before.
        hidden_features: size of the last axis after, for each direction.
        key: the key for the weights, uniform in ±1 / sqrt(hidden_features).
        num_layers: each on top of the one before.
        bidirectional: a second cell in each layer runs from the end.
        activation: tanh by default.
        use_bias: whether there is a bias.
        dropout_rate: the dropout rate between layers, when training.
        inference: whether nothing is dropped.
        dtype: dtype of the weights.

    Example:
        >>> out, state = nnc.nn.RNN(3, 4, key=nnc.random.key(0))(np.ones((2, 5, 3), np.float32))
        >>> out.shape, state[0][0].shape
        ((2, 5, 4), (2, 4))
    """

    cell: ClassVar[type[_Cell[Any]]] = RNNCell

    @spelled
    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: ArrayLike,
        num_layers: int = 1,
        bidirectional: bool = False,
        activation: Callable[[Array], Array] = nnp.tanh,
        use_bias: bool = True,
        dropout_rate: float = 0.0,
        inference: bool = False,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self._set_up((in_features, hidden_features), key, num_layers, bidirectional, dropout_rate, inference,
                     use_bias=use_bias, activation=activation, dtype=dtype)  # fmt: skip


class GRU(_Recurrent[Array], init=False):
    """Layers of GRUCell over time; the arguments are those of `nnc.nn.RNN`.

    Args:
        in_features: size of the last axis before.
        hidden_features: size of the last axis after, for each direction.
        key: the key for the weights, uniform in ±1 / sqrt(hidden_features).
        num_layers: each takes the outputs of the one before.
        bidirectional: a second cell runs backwards, and the outputs of both are joined along the last axis.
        use_bias: whether there are biases.
        dropout_rate: the dropout rate between layers, when training.
        inference: whether nothing is dropped.
        dtype: dtype of the weights.

    Example:
        >>> out, _ = nnc.nn.GRU(3, 4, key=nnc.random.key(0), num_layers=2)(np.ones((2, 5, 3), np.float32))
        >>> out.shape
        (2, 5, 4)
    """

    cell: ClassVar[type[_Cell[Any]]] = GRUCell


class LSTM(_Recurrent[LSTMState], init=False):
    """Layers of LSTMCell over time; the arguments are those of `nnc.nn.RNN`.

    Args:
        in_features: size of the last axis before.
        hidden_features: size of the last axis after, for each direction.
        key: the key for the weights, uniform in ±1 / sqrt(hidden_features).
        num_layers: each takes the outputs of the one before.
        bidirectional: a second cell runs backwards, and the outputs of both are joined along the last axis.
        use_bias: whether there are biases.
        dropout_rate: the dropout rate between layers, when training.
        inference: whether nothing is dropped.
        dtype: dtype of the weights.

    Example:
        >>> layer = nnc.nn.LSTM(3, 4, key=nnc.random.key(0), bidirectional=True)
        >>> out, ((forward, backward),) = layer(np.ones((2, 5, 3), np.float32), lengths=np.array([5, 2]))
        >>> out.shape, backward.cell.shape
        ((2, 5, 8), (2, 4))
    """

    cell: ClassVar[type[_Cell[Any]]] = LSTMCell
