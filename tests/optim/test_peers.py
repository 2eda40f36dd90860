"""Twenty steps beside Optax and torch.optim, where those are installed: the same numbers for the same name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim

STEPS = 20
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def problem(dtype: str) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(7)
    shapes = {"w": (4, 3), "b": (3,), "k": (2, 3, 2)}

    def draw() -> dict[str, np.ndarray]:
        return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}

    return draw(), [draw() for _ in range(STEPS)]


def nnc_path(optimizer: optim.GradientTransformation, dtype: str) -> list[dict[str, np.ndarray]]:
    start, grads = problem(dtype)
    params: Any = {name: nnp.asarray(x) for name, x in start.items()}

    @nnc.compile(max_traces=1)
    def step(params: Any, state: Any, g: Any) -> Any:
        updates, state = optimizer.update(g, state, params)
        return optim.apply_updates(params, updates), state

    state, path = optimizer.init(params), []
    for g in grads:
        params, state = step(params, state, {name: nnp.asarray(x) for name, x in g.items()})
        path.append({name: np.asarray(x) for name, x in params.items()})
    return path


def assert_same_path(ours: Any, theirs: Any, tolerance: float) -> None:
    for t, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for name in a:
            assert np.allclose(a[name], b[name], rtol=tolerance, atol=tolerance), (
                t,
                name,
                np.abs(a[name] - b[name]).max(),
            )


# -- Optax -------------------------------------------------------------------------------------------------------------

RATE = 0.03
Make = Callable[[Any], Any]  # from the module, nnc.optim or optax, to the optimizer


def wave(o: Any) -> Any:
    return o.warmup_cosine_decay_schedule(0.0, RATE, 5, STEPS)


def ndim_mask(params: Any) -> Any:
    return {name: x.ndim > 1 for name, x in params.items()}


WAVE = {"init_value": 0.0, "peak_value": 0.1, "warmup_steps": 2, "decay_steps": 7}

OPTAX: dict[str, Make] = {
    "sgd": lambda o: o.sgd(RATE, 0.9, nesterov=True),
    "adam": lambda o: o.adam(RATE, 0.8, 0.99),
    "adamw": lambda o: o.adamw(wave(o), weight_decay=0.05, mask={"w": True, "b": False, "k": True}),
    "amsgrad": lambda o: o.chain(o.scale_by_amsgrad(b2=0.9), o.scale(-RATE)),
    "nadam": lambda o: o.nadam(RATE),
    "radam": lambda o: o.radam(RATE, b2=0.9),
    "radam with nesterov": lambda o: o.radam(RATE, b2=0.9, nesterov=True, eps_root=1e-3),
    "adamax": lambda o: o.adamax(RATE, eps=1e-3),
    "adagrad": lambda o: o.adagrad(RATE),
    "adadelta": lambda o: o.adadelta(1.0, rho=0.8, eps=1e-3, weight_decay=0.1),
    "rmsprop": lambda o: o.rmsprop(RATE, momentum=0.5, centered=True, eps=1e-3),
    "lamb": lambda o: o.lamb(RATE, weight_decay=0.1),
    "lars": lambda o: o.lars(1.0, 0.1, trust_coefficient=0.01, trust_ratio_mask={"w": True, "b": False, "k": True}),
    "lion": lambda o: o.lion(RATE, weight_decay=0.1),
    "adafactor": lambda o: o.adafactor(RATE, min_dim_size_to_factor=3, momentum=0.5, weight_decay_rate=0.01),
    "adafactor whole": lambda o: o.adafactor(wave(o), factored=False, clipping_threshold=None),
    "lbfgs without a search": lambda o: o.lbfgs(RATE, memory_size=4, linesearch=None),
    "clip": lambda o: o.chain(o.clip(0.5), o.sgd(RATE)),
    "clip_by_block_rms": lambda o: o.chain(o.clip_by_block_rms(0.5), o.sgd(RATE)),
    "clip_by_global_norm": lambda o: o.chain(o.clip_by_global_norm(0.5), o.sgd(RATE)),
    "adaptive_grad_clip": lambda o: o.chain(o.adaptive_grad_clip(0.1), o.sgd(RATE)),
    "ema": lambda o: o.chain(o.ema(0.9), o.scale(-RATE)),
    "masked": lambda o: o.masked(o.adam(RATE), ndim_mask),
    "partition": lambda o: o.multi_transform(
        {"a": o.adam(RATE), "s": o.sgd(0.1), "z": o.set_to_zero()}, {"w": "a", "b": "s", "k": "z"}
    ),
    "accumulation": lambda o: o.MultiSteps(o.adam(RATE), 3).gradient_transformation(),
    "injected": lambda o: o.inject_hyperparams(o.adam)(learning_rate=wave(o), b1=0.8),
    "one cycle": lambda o: o.sgd(o.cosine_onecycle_schedule(STEPS, 0.1)),
    "linear one cycle": lambda o: o.sgd(o.linear_onecycle_schedule(STEPS, 0.1)),
    "restarts": lambda o: o.sgd(o.sgdr_schedule([WAVE] * 3)),
    "exponential with warm-up": lambda o: o.sgd(o.warmup_exponential_decay_schedule(0.0, 0.1, 3, 4, 0.5)),
}  # fmt: skip
LOOSE = {
    "adafactor",
    "adafactor whole",
    "one cycle",
    "linear one cycle",
    "restarts",
    "adamw",
    "exponential with warm-up",
    "accumulation",
    "injected",
}


@pytest.fixture(scope="module")
def optax() -> Any:
    pytest.importorskip("jax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("optax")


def optax_path(optax: Any, make: Make, dtype: str) -> list[dict[str, np.ndarray]]:
    import jax  # noqa: PLC0415  an optional peer

    with warnings.catch_warnings(), jax.enable_x64(dtype == "float64"):
        warnings.simplefilter("ignore")
        optimizer = make(optax)
        start, grads = problem(dtype)
        params: Any = {name: jax.numpy.asarray(x) for name, x in start.items()}
        state, path = optimizer.init(params), []
        update = jax.jit(optimizer.update)
        for g in grads:
            updates, state = update(g, state, params)
            params = optax.apply_updates(params, updates)
            path.append({name: np.asarray(x) for name, x in params.items()})
        return path


@pytest.mark.parametrize("name", OPTAX)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_twenty_steps_agree_with_optax(optax: Any, name: str, dtype: str) -> None:
    make = OPTAX[name]
    tolerance = 1e-6 if name in LOOSE and dtype == "float64" else TOLERANCE[dtype]  # what Optax keeps in float32
    assert_same_path(nnc_path(make(optim), dtype), optax_path(optax, make, dtype), tolerance)


def test_muon_agrees_with_optax(optax: Any) -> None:
    def make(o: Any) -> Any:
        return o.muon(RATE, weight_decay=0.1, adam_weight_decay=0.1)

    peer = lambda o: make(o.contrib)
    for dtype, tolerance in (("float64", 2e-6), ("float32", 2e-5)):  # Optax's coefficients are float32
        assert_same_path(nnc_path(make(optim), dtype), optax_path(optax, peer, dtype), tolerance)


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


# -- torch -------------------------------------------------------------------------------------------------------------

TORCH: dict[str, tuple[Make, Make, float]] = {
    "SGD": (lambda o: o.sgd(RATE, 0.9, weight_decay=0.1), lambda t: lambda p: t.SGD(p, RATE, 0.9, weight_decay=0.1), 1e-10),
    "SGD with nesterov": (lambda o: o.sgd(RATE, 0.9, True), lambda t: lambda p: t.SGD(p, RATE, 0.9, nesterov=True), 1e-10),
    "SGD with dampening": (
        lambda o: o.sgd(RATE, 0.9, dampening=0.3), lambda t: lambda p: t.SGD(p, RATE, 0.9, dampening=0.3), 1e-10
    ),
    "Adam with amsgrad": (
        lambda o: o.adam(RATE, b2=0.9, amsgrad=True), lambda t: lambda p: t.Adam(p, RATE, (0.9, 0.9), amsgrad=True), 1e-10
    ),
    "Adam": (lambda o: o.adam(RATE), lambda t: lambda p: t.Adam(p, RATE), 1e-10),
    "AdamW": (lambda o: o.adamw(RATE, weight_decay=0.1), lambda t: lambda p: t.AdamW(p, RATE, weight_decay=0.1), 1e-10),
    "NAdam": (lambda o: o.nadam(RATE, momentum_decay=4e-3), lambda t: lambda p: t.NAdam(p, RATE), 1e-8),  # torch: float32 product
    "RAdam": (  # torch adds eps before the correction of the divisor
        lambda o: o.radam(RATE, b2=0.9), lambda t: lambda p: t.RAdam(p, RATE, betas=(0.9, 0.9)), 1e-7
    ),
    "Adamax": (lambda o: o.adamax(RATE), lambda t: lambda p: t.Adamax(p, RATE), 1e-10),
    "Adagrad": (
        lambda o: o.adagrad(lambda t: RATE / (1 + nnp.asarray(np.float64(0.1)) * t), 0.0, 1e-10, eps_in_sqrt=False),
        lambda t: lambda p: t.Adagrad(p, RATE, lr_decay=0.1), 1e-10,
    ),
    "Adadelta": (
        lambda o: o.adadelta(1.0, weight_decay=0.1), lambda t: lambda p: t.Adadelta(p, 1.0, weight_decay=0.1), 1e-10
    ),
    "RMSprop, centered": (
        lambda o: o.rmsprop(RATE, 0.99, eps_in_sqrt=False, centered=True, momentum=0.5),
        lambda t: lambda p: t.RMSprop(p, RATE, centered=True, momentum=0.5), 1e-10,
    ),
    "RMSprop": (
        lambda o: o.rmsprop(RATE, 0.99, eps_in_sqrt=False), lambda t: lambda p: t.RMSprop(p, RATE), 1e-10
    ),
    "Adafactor": (
        lambda o: o.adafactor(lambda t: nnp.minimum(RATE, 1 / nnp.sqrt(t + 1.0)), 1),
        lambda t: lambda p: t.Adafactor(p, RATE), 2e-5,  # its factors are floored elsewhere; its last axes are the factors
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_twenty_steps_agree_with_torch(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    make, peer, tolerance = TORCH[name]
    start, grads = problem(dtype)
    params = {key: torch.nn.Parameter(torch.tensor(x)) for key, x in start.items()}
    optimizer, path = peer(torch.optim)(list(params.values())), []
    for g in grads:
        for key, p in params.items():
            p.grad = torch.tensor(g[key])
        optimizer.step()
        path.append({key: p.detach().numpy().copy() for key, p in params.items()})
    assert_same_path(nnc_path(make(optim), dtype), path, max(tolerance, 1e-5 * (dtype == "float32")))


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
