"""Dynamic graphs on a simulated device: values, gradients and history are those of the CPU, and stay on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import inf
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.errors import ArgumentTypeError, DeviceError
from nnc.trace.dynamic import routine as dynamic_routine
from tests.devices.wrong import new_device
from tests.fuzz.programs.generated import OPERATIONS
from tests.fuzz.programs.test_remembered_dynamic import (
    ACTIONS,
    EVALUATED,
    SMOOTH,
    Action,
    Script,
    Session,
    actions,
    check_seen,
    session,
)

LITTLE = settings(max_examples=settings.default.max_examples // 5)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def g() -> nnc.DynamicGraph:
    return nnc.DynamicGraph()


def there(x: Any = X, device: str = "sim:0") -> Any:
    return nnc.device_put(x, device)


# -- generated runs ----------------------------------------------------------------------------------------------------


class SessionThere(Session):
    """A session whose variables lie on a device, as all that is computed of them must, until one is donated: of a donated array no
    device is known.
    """

    knows_devices = True

    def begin(self, seed: int) -> None:
        """Makes variables on the device."""
        self.knows_devices = True
        with nnc.default_device("sim:0"):
            super().begin(seed)

    def add(self, x: Any) -> None:
        """One more value, where the others are."""
        assert isinstance(x, np.ndarray) or not self.knows_devices or x.device == "sim:0"
        super().add(x)

    def note(self, x: Any) -> Any:
        """All that can be seen of a value, but for the type of its array."""
        seen = super().note(x)
        return ("Array", *seen[1:]) if isinstance(seen, tuple) and seen[0] == "DeviceArray" else seen

    def do(self, action: Action, number: int) -> None:
        """Does one thing; gradients are where their variables are."""
        self.knows_devices &= action.kind != "donate"
        with (
            nnc.default_device("sim:0") if action.kind == "buffer" else nullcontext()
        ):  # for functions of the buffer alone
            super().do(action, number)
        if self.knows_devices:
            assert {x.grad.device for x in self.declared if x.grad is not None} <= {"sim:0"}


def check_script(script: Sequence[Action], n: int, dtypes: Sequence[str]) -> None:
    with patch.object(dynamic_routine, "ENOUGH", inf):
        expected = session(script, n, dtypes)
    with patch("tests.fuzz.programs.test_remembered_dynamic.Session", SessionThere):
        found = session(script, n, dtypes)
    check_seen(found, expected, 2e-5)


NAMES = [name for name in SMOOTH if name != "draw"]  # which has a key on the CPU


@LITTLE
@given(actions(NAMES, ACTIONS), Script)
def test_generated_runs_have_the_values_gradients_and_history_of_the_cpu(
    script: list[Action], start: tuple[int, list[str]]
) -> None:
    """To rounding: eager products of the CPU read views where a device has copies, and may add in another order."""
    check_script(script, *start)


@LITTLE
@given(actions(NAMES, EVALUATED), Script)
def test_evaluated_and_compiled_functions_agree(script: list[Action], start: tuple[int, list[str]]) -> None:
    check_script(script, *start)


SUMS = ("draw", "@", "sum", "mean", "layer", "norm")
EXACT = [name for name in OPERATIONS if not any(part in name for part in SUMS)]


@LITTLE
@given(actions(EXACT, ("do", "do", "set", "write", "look", "no grad", "buffer", "numbers")), Script)
def test_values_without_products_and_sums_are_those_of_the_cpu_bit_for_bit(
    script: list[Action], start: tuple[int, list[str]]
) -> None:
    with patch.object(dynamic_routine, "ENOUGH", inf):
        expected = session(script, *start)
    with patch("tests.fuzz.programs.test_remembered_dynamic.Session", SessionThere):
        check_seen(session(script, *start), expected, 0)


# -- steps of training -------------------------------------------------------------------------------------------------


def train(g: nnc.DynamicGraph, device: str, step: Callable[[nnc.DynamicGraph, Any, Any], Any], steps: int = 4) -> Any:
    """The parameters after some steps, each of which copies nothing between the host and the device."""
    model = nn.MLP(3, 2, 8, 1, key=nnc.random.key(0))
    variables = nnc.tree.map(lambda x: g.variable(x.to_device(device)), model)
    x = there(X, device)
    with nnc.debug.transfers("error"):
        for _ in range(steps):
            step(g, variables, x)
    return [variable.held for variable in nnc.tree.leaves(variables) if hasattr(variable, "held")]


def loss(model: Any, x: Any) -> Any:
    return nnp.mean((model(x) - 1.0) ** 2)


ADAM = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(0.05))
COMPILED = nnc.compile(loss)
STEPS: dict[str, Callable[[nnc.DynamicGraph, Any, Any], Any]] = {
    "minimize": lambda g, model, x: g.minimize(loss(model, x), ADAM),
    "backward twice": lambda g, model, x: (
        g.backward(loss(model, x)),
        g.backward(loss(model, x)),
        g.apply_gradients(ADAM),
    ),
    "evaluate": lambda g, model, x: g.minimize(g.evaluate(loss, model, x), ADAM),
    "evaluate compiled": lambda g, model, x: g.minimize(g.evaluate(COMPILED, model, x), ADAM),
}


@pytest.mark.parametrize("name", STEPS)
def test_training_ends_with_the_weights_of_the_cpu(name: str) -> None:
    optimizer_states = [train(nnc.DynamicGraph(), device, STEPS[name]) for device in ("sim:0", "cpu")]
    assert len(optimizer_states[0]) == 4
    for found, wanted in zip(*optimizer_states, strict=True):
        assert found.device == "sim:0" and found.spec == wanted.spec
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


def test_steps_give_their_memory_back(g: nnc.DynamicGraph) -> None:
    _, place = new_device()
    x = there(np.ones((64, 64), np.float32), place)
    w = g.variable(x)
    pool = w.held.memory.device.pool
    used = []
    for _ in range(30):
        g.backward(nnp.sum(nnp.tanh(w @ x)))
        w.set(w.held - w.grad * 0.1)
        w.grad = None
        used.append(pool.used)
    assert used[-1] <= max(used[:10])


# -- where values are --------------------------------------------------------------------------------------------------


def test_variables_are_where_their_arrays_are(g: nnc.DynamicGraph) -> None:
    v, host = g.variable(there()), g.variable(X)
    assert (v.device, host.device, g.variable().device) == ("sim:0", "cpu", "cpu")
    for x in (
        v + 1,
        v * X,
        X @ v.T,
        nnp.where(v > 2, v, 0.0),
        nnp.triu(v),
        there() * v,
        v * there(),
        v[0],
        v.T.reshape(-1),
    ):
        assert x.device == "sim:0"
    assert (host + 1).device == "cpu" and np.array_equal(host + 1, X + 1)
    assert (v + g.variable(1.5)).device == "sim:0"  # a variable of the CPU without axes
    with nnc.default_device("sim:0"):
        assert g.variable(X).device == "sim:0" and (host * 2).device == "cpu"


def test_a_variable_moves_with_the_array_written_to_it(g: nnc.DynamicGraph) -> None:
    v = g.variable(X)
    y = v * 2.0
    v.set(there())
    assert v.device == "sim:0" and y.device == "cpu" and (v * 2.0).device == "sim:0"
    v.set(X + 1)  # an array of NumPy goes where the variable is
    v[0] = 7
    assert v.device == "sim:0" and np.array_equal(v[0], [7, 7, 7])
    v.set(nnp.asarray(X))
    assert v.device == "cpu"
    alias, base = None, g.variable(there())
    alias = base[0]
    base[0, 1] = 9
    assert alias.device == "sim:0" and np.array_equal(alias, [0, 9, 2])


def test_gradients_are_where_their_variables_are(g: nnc.DynamicGraph) -> None:
    v, unused = g.variable(there()), g.variable(there(device="sim:1"))
    g.backward(v * X, df=np.ones((2, 3)), inputs=[v, unused])
    assert np.array_equal(v.grad, X) and v.grad.device == "sim:0"
    assert unused.grad.device == "sim:1" and not np.asarray(unused.grad).any()
    g.backward(v * X, df=there())
    assert np.array_equal(v.grad, X + X * X)
    v.grad = X
    assert v.grad.device == "sim:0"
    with pytest.raises(DeviceError, match="on sim:0 and on sim:1"):
        g.apply_gradients(optim.sgd(1.0))
    unused.grad = None
    g.apply_gradients(optim.sgd(1.0))
    assert v.device == "sim:0" and np.array_equal(v, X - X)


def test_loops_and_branches_are_differentiated(g: nnc.DynamicGraph) -> None:
    def body(c: Any, row: Any) -> Any:
        return nnp.sin(c * row), nnc.cond(nnp.sum(c) > 0, nnp.cos, nnp.sin, c)

    def total(x: Any) -> Any:
        return nnp.sum(nnc.scan(body, x[0] + 1, x)[1])

    v = g.variable(there())
    g.backward(total(v))
    assert v.grad.device == "sim:0"
    np.testing.assert_allclose(v.grad, nnc.grad(total)(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(nnc.grad(total)(v), nnc.grad(total)(X), rtol=1e-5, atol=1e-6)
    assert nnc.vmap(total)(v[None]).device == "sim:0"


def test_draws_and_their_gradients_stay_there(g: nnc.DynamicGraph) -> None:
    key, v = there(nnc.random.key(3)), g.variable(there())
    with nnc.debug.transfers("error"):
        g.backward(nnp.sum(v * nnc.random.normal(key, (2, 3))))
    assert np.array_equal(v.grad, nnc.random.normal(nnc.random.key(3), (2, 3)))


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["cpu", "sim:1"])
def test_variables_on_two_devices_are_an_error_with_both_and_leave_nothing_behind(
    g: nnc.DynamicGraph, other: str
) -> None:
    v, w = g.variable(there()), g.variable(there(device=other))
    before = g.bookkeeping()
    for use in (
        lambda: v + w,
        lambda: v @ w.T,
        lambda: nnp.concatenate([v, w]),
        lambda: g.evaluate(COMPILED, v.sum, w),
    ):
        with pytest.raises((DeviceError, ArgumentTypeError, TypeError)):
            use()
    with pytest.raises(DeviceError, match=rf"add: its operands are on sim:0 and on {other}[\s\S]*Fix: "):
        v + w
    assert g.bookkeeping() == before


def test_a_donated_array_of_a_device_is_told(g: nnc.DynamicGraph) -> None:
    v = g.variable(there())
    v.array.delete()
    with pytest.raises(ArgumentTypeError, match="donated"):
        v + 1


def test_a_donating_function_leaves_the_values_of_variables(g: nnc.DynamicGraph) -> None:
    v = g.variable(there())
    y = g.evaluate(nnc.compile(lambda x: x + 1, donate_argnums=0), v)
    assert np.array_equal(v, X) and np.array_equal(y, X + 1)
