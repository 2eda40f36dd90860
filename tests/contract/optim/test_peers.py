"""Twenty steps beside Optax and torch.optim, where those are installed: the same numbers for the same name."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from tests.contract.optim.peers import TORCH, nnc_path, optax_path, torch_path
from tests.contract.optim.settings import LOOSE, MUON, OPTAX, RATE, ROUGH, STEPS

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def assert_same_path(ours: Any, theirs: Any, tolerance: float) -> None:
    for t, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for name in a:
            assert np.allclose(a[name], b[name], rtol=tolerance, atol=tolerance), (
                t,
                name,
                np.abs(a[name] - b[name]).max(),
            )


@pytest.fixture(scope="module")
def optax() -> Any:
    pytest.importorskip("jax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("optax")


@pytest.mark.parametrize("name", OPTAX)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_twenty_steps_agree_with_optax(optax: Any, name: str, dtype: str) -> None:
    make = OPTAX[name]
    tolerance = 1e-6 if name in LOOSE and dtype == "float64" else TOLERANCE[dtype]  # states that Optax keeps in float32
    tolerance = 1e-5 if name in ROUGH else tolerance
    assert_same_path(nnc_path(make(optim), dtype), optax_path(optax, make, dtype), tolerance)


def test_muon_agrees_with_optax(optax: Any) -> None:
    for dtype, tolerance in (("float64", 2e-6), ("float32", 2e-5)):  # Optax's coefficients are float32
        assert_same_path(nnc_path(MUON(optim), dtype), optax_path(optax, MUON, dtype), tolerance)


def valley(xp: Any, p: Any) -> Any:
    """Rosenbrock's function of four numbers, with a quartic."""
    return xp.sum(100 * (p["a"][1:] - p["a"][:-1] ** 2) ** 2 + (1 - p["a"][:-1]) ** 2) + xp.sum((p["b"] - 2) ** 4)


def test_lbfgs_with_its_line_search_takes_the_steps_of_optax(optax: Any) -> None:
    import jax  # noqa: PLC0415  an optional peer

    start = {"a": np.array([-1.2, 1.0, 0.5, 2.0]), "b": np.array([0.5, 3.0])}
    ours: Any = {name: nnp.asarray(x) for name, x in start.items()}
    optimizer, loss = optim.lbfgs(memory_size=5), lambda p: valley(nnp, p)

    @nnc.compile(max_traces=1)
    def step(p: Any, state: Any) -> Any:
        value, grad = optim.value_and_grad_from_state(loss)(p, state=state)
        updates, state = optimizer.update(grad, state, p, value=value, grad=grad, value_fn=loss)
        return optim.apply_updates(p, updates), state

    state = optimizer.init(ours)
    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        peer, peer_loss = optax.lbfgs(memory_size=5), lambda p: valley(jax.numpy, p)
        theirs: Any = {name: jax.numpy.asarray(x) for name, x in start.items()}
        peer_state = peer.init(theirs)

        @jax.jit
        def peer_step(p: Any, state: Any) -> Any:
            value, grad = jax.value_and_grad(peer_loss)(p)
            updates, state = peer.update(grad, state, p, value=value, grad=grad, value_fn=peer_loss)
            return optax.apply_updates(p, updates), state

        for t in range(STEPS):
            ours, state = step(ours, state)
            theirs, peer_state = peer_step(theirs, peer_state)
            for name in start:
                assert np.allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-8), t
            assert int(state[-1].info.num_linesearch_steps) == int(peer_state[-1].info.num_linesearch_steps)


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_twenty_steps_agree_with_torch(name: str, dtype: str) -> None:
    pytest.importorskip("torch")
    make, peer, tolerance = TORCH[name]
    tolerance = max(tolerance, 1e-5 * (dtype == "float32"))
    assert_same_path(nnc_path(make(optim), dtype), torch_path(peer, dtype), tolerance)


def test_complex_parameters_as_two_reals_agree_with_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    draw = lambda: rng.normal(size=3) + 1j * rng.normal(size=3)
    start, grads = draw(), [draw() for _ in range(STEPS)]
    theirs = torch.nn.Parameter(torch.tensor(start))
    peer = torch.optim.Adam([theirs], RATE)
    optimizer = optim.split_real_and_imaginary(optim.adam(RATE))
    ours: Any = nnp.asarray(start)
    state = optimizer.init(ours)
    for g in grads:
        theirs.grad = torch.tensor(g)
        peer.step()
        updates, state = optimizer.update(nnp.asarray(g), state, ours)
        ours = optim.apply_updates(ours, updates)
        assert np.allclose(ours, theirs.detach().numpy(), rtol=1e-10)
