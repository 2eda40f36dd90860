"""Recurrent layers against a loop in NumPy, with lengths, in both directions, under all transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, tree
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError
from nnc.testing import check_grads

KEY = nnc.random.key(0)
ZEROS = np.zeros((3, 4), np.float32)
X = np.random.default_rng(0).normal(size=(3, 5, 2)).astype(np.float32)
LAYERS = [nn.RNN, nn.GRU, nn.LSTM]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def advance(cell: Any, x: Any, state: Any) -> Any:
    """One step in NumPy, from the definition of each cell."""
    w = {name: np.asarray(value) for name, value in nn.parameters(cell).items()}
    gates = x @ w["weight_ih"].T + w["bias_ih"]
    recurrent = (state[0] if isinstance(cell, nn.LSTMCell) else state) @ w["weight_hh"].T + w["bias_hh"]
    if isinstance(cell, nn.RNNCell):
        return np.tanh(gates + recurrent)
    if isinstance(cell, nn.LSTMCell):
        i, f, g, o = np.split(gates + recurrent, 4, -1)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    (r, z, n), (hr, hz, hn) = np.split(gates, 3, -1), np.split(recurrent, 3, -1)
    z = sigmoid(z + hz)
    return (1 - z) * np.tanh(n + sigmoid(r + hr) * hn) + z * state


def run_by_hand(cell: Any, x: Any, reverse: bool = False) -> Any:
    """The outputs of one sequence (T, in)."""
    zeros = np.zeros(cell.hidden_features, np.float32)
    state = (zeros, zeros) if isinstance(cell, nn.LSTMCell) else zeros
    outputs = []
    for row in x[::-1] if reverse else x:
        state = advance(cell, row, state)
        outputs.append(state[0] if isinstance(cell, nn.LSTMCell) else state)
    return np.array(outputs[::-1] if reverse else outputs), state


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_equal_a_loop_of_their_cells(kind: Any) -> None:
    layer = kind(2, 4, key=KEY)
    out, ((state,),) = layer(X)
    for i in range(3):
        want, last = run_by_hand(layer.layers[0][0], X[i])
        np.testing.assert_allclose(np.asarray(out)[i], want, rtol=1e-5, atol=1e-6)
        for got, expected in zip(tree.leaves(state), tree.leaves(last), strict=True):
            np.testing.assert_allclose(np.asarray(got)[i], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", LAYERS)
def test_lengths_cut_each_sequence_in_both_directions(kind: Any) -> None:
    layer, lengths = kind(2, 4, key=KEY, bidirectional=True), np.array([5, 3, 1])
    out, _ = layer(X, lengths=lengths)
    masked, _ = layer(X, mask=np.arange(5) < lengths[:, None])
    np.testing.assert_array_equal(np.asarray(out), np.asarray(masked))
    for i, n in enumerate(lengths):
        for j, cell in enumerate(layer.layers[0]):
            want, _ = run_by_hand(cell, X[i, :n], reverse=j == 1)
            np.testing.assert_allclose(np.asarray(out)[i, :n, 4 * j : 4 * j + 4], want, rtol=1e-5, atol=1e-6)
        assert not np.asarray(out)[i, n:].any()


def test_states_carry_over_from_call_to_call() -> None:
    layer = nn.LSTM(2, 4, key=KEY, num_layers=2)
    whole, last = layer(X)
    first, state = layer(X[:, :2])
    second, end = layer(X[:, 2:], state)
    np.testing.assert_allclose(np.concatenate([first, second], 1), np.asarray(whole), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(end[1][0].cell), np.asarray(last[1][0].cell), rtol=1e-5, atol=1e-6)


def test_batch_axes_are_optional() -> None:
    layer = nn.GRU(2, 4, key=KEY)
    out, _ = layer(X)
    np.testing.assert_allclose(np.asarray(layer(X[0])[0]), np.asarray(out)[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(layer(X[:, None])[0])[:, 0], np.asarray(out), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        np.asarray(nnc.vmap(lambda x: layer(x)[0])(X)), np.asarray(out), rtol=1e-5, atol=1e-6
    )  # fmt: skip


@pytest.mark.parametrize("kind", LAYERS)
def test_derivatives_agree_with_finite_differences_in_both_modes(kind: Any) -> None:
    layer = kind(2, 3, key=KEY, num_layers=2, bidirectional=True, dtype="float64")
    x = X[:2, :3].astype(np.float64)

    def total(layer: Any, x: Any) -> Any:
        return nnp.sum(nnp.sin(layer(x, lengths=np.array([3, 2]))[0]))

    check_grads(total, (layer, x), order=1, modes=("fwd", "rev"))
    value, tangent = nnc.jvp(lambda x: layer(x)[0], (x,), (np.ones_like(x),))
    assert value.shape == tangent.shape == (2, 3, 6)


def test_a_long_lstm_compiles_with_its_gradient() -> None:
    layer, x = nn.LSTM(4, 8, key=KEY), np.random.default_rng(1).normal(size=(2, 64, 4)).astype(np.float32)
    loss = nnc.value_and_grad(lambda layer, x: nnp.mean(layer(x)[0] ** 2))
    value, grads = loss(layer, x)
    compiled_value, compiled_grads = nnc.compile(loss)(layer, x)
    np.testing.assert_allclose(float(compiled_value), float(value), rtol=1e-5)
    for a, b in zip(tree.leaves(compiled_grads), tree.leaves(grads), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_dropout_lies_between_layers_and_asks_for_a_key(kind: Any) -> None:
    layer = kind(2, 4, key=KEY, num_layers=2, dropout_rate=0.5)
    with pytest.raises(ArgumentError, match="there is no key"):
        layer(X)
    one, other = layer(X, key=KEY)[0], layer(X, key=nnc.random.key(1))[0]
    assert not np.array_equal(np.asarray(one), np.asarray(other))
    still = nn.inference_mode(layer)(X)[0]
    np.testing.assert_array_equal(np.asarray(still), np.asarray(nn.inference_mode(layer)(X)[0]))


def test_an_rnn_takes_other_activations() -> None:
    layer = nn.RNN(2, 4, key=KEY, activation=nn.relu)
    assert np.asarray(layer(X)[0]).min() == 0
    assert nn.RNNCell(2, 4, key=KEY, use_bias=False).bias_hh is None


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.LSTM(2, 4, key=KEY)(X[..., :1]), ShapeError, "LSTMCell: axis -1 of the input must be 2"),
        (lambda: nn.LSTM(2, 4, key=KEY)(X[0, 0]), ShapeError, "LSTM: the input has no time axis"),
        (lambda: nn.LSTM(2, 4, key=KEY)(X, lengths=np.array([1, 2])), ShapeError, r"integers of shape \(3,\)"),
        (lambda: nn.LSTM(2, 4, key=KEY)(X, mask=np.ones((3, 5))), ShapeError, r"bools of shape \(3, 5\)"),
        (lambda: nn.LSTM(2, 4, key=KEY)(X, mask=1, lengths=2), ArgumentError, "both given"),
        (lambda: nn.LSTM(2, 4, key=KEY)(X, ((1,), (2,))), ArgumentError, "initial has not 1 states for each of 1 layers"),
        (lambda: nn.LSTM(2, 4, key=KEY)(X, (ZEROS, ZEROS)), ArgumentError, "initial has not 1 states for each of 1 layers"),
        (lambda: nn.LSTM(2, 4, key=KEY)(X, ((ZEROS,),)), ShapeError, r"must be LSTMState\(hidden, cell\) of shape \(3, 4\)"),
        (lambda: nn.GRU(2, 4, key=KEY)(X, ((ZEROS[:2],),)), ShapeError, r"must be an array of shape \(3, 4\)"),
        (lambda: nn.LSTMCell(2, 4, key=KEY)(X[:2, 0], np.zeros((2, 4))), ShapeError, "must be LSTMState"),
        (lambda: nn.LSTM(2, 4, key=KEY)(X, lengths=np.array([5, 6, 1])), IndexError, "lengths hold 6, sequences have 0 to 5"),
        (lambda: nn.LSTM(2, 4, key=KEY)(X, lengths=np.array([5, -1, 1])), IndexError, "lengths hold -1"),
        (lambda: nn.LSTM(2, hidden_size=4, key=KEY), ArgumentTypeError, "^LSTM: it has no argument"),  # type: ignore[call-arg]
        (lambda: nn.GRU(2, 4, key=KEY, num_layers=0), ArgumentError, "num_layers is 0"),
        (lambda: nn.GRU(2, hidden_size=4, key=KEY), ArgumentTypeError, "write hidden_features="),  # type: ignore[call-arg]
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
