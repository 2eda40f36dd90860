"""The optimizers that Optax and torch.optim have, too, and the paths that each of them takes.

python -m tests.contract.optim.peers        records where the peers' paths lead, in recorded_peers.npz: needs Optax and PyTorch
"""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import optim
from tests.contract.optim.settings import ADAPTIVE_MUON, MUON, OPTAX, RATE, STEPS, Make

VALUES = np.linspace(3.0, 0.5, STEPS) + np.cos(np.arange(STEPS))  # of the loss; most optimizers ignore them
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def problem(dtype: str) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(7)
    shapes = {"w": (4, 3), "b": (3,), "k": (2, 3, 2)}

    def draw() -> dict[str, np.ndarray]:
        return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}

    return draw(), [draw() for _ in range(STEPS)]


def again(params: Any, g: Any) -> Any:
    """The gradient at other parameters, which sharpness-aware optimizers ask for."""
    return {name: g[name] + 0.1 * params[name] for name in g}


def nnc_path(optimizer: optim.GradientTransformation, dtype: str) -> list[dict[str, np.ndarray]]:
    start, grads = problem(dtype)
    params: Any = {name: nnp.asarray(x) for name, x in start.items()}

    @nnc.compile(max_traces=1)
    def step(params: Any, state: Any, g: Any, value: Any) -> Any:
        updates, state = optimizer.update(g, state, params, value=value, grad=g, grad_fn=lambda p, i: again(p, g))
        return optim.apply_updates(params, updates), state

    state, path = optimizer.init(params), []
    for value, g in zip(VALUES, grads, strict=True):
        params, state = step(
            params, state, {name: nnp.asarray(x) for name, x in g.items()}, nnp.asarray(np.float64(value))
        )
        path.append({name: np.asarray(x) for name, x in params.items()})
    return path


class Names:
    """The names of Optax, whichever module holds them; nnc.optim has all of them."""

    def __init__(self, optax: Any) -> None:
        self._modules = (optax, optax.contrib, optax.transforms)

    def __getattr__(self, name: str) -> Any:
        return next(getattr(module, name) for module in self._modules if hasattr(module, name))


def optax_path(optax: Any, make: Make, dtype: str) -> list[dict[str, np.ndarray]]:
    import jax  # noqa: PLC0415  an optional peer

    with warnings.catch_warnings(), jax.enable_x64(dtype == "float64"):
        warnings.simplefilter("ignore")
        optimizer = optax.with_extra_args_support(make(Names(optax)))
        start, grads = problem(dtype)
        params: Any = {name: jax.numpy.asarray(x) for name, x in start.items()}
        state, path = optimizer.init(params), []

        @jax.jit
        def update(g: Any, state: Any, params: Any, value: Any) -> Any:
            if "grad_fn" in inspect.signature(optimizer.update).parameters:  # nothing else is allowed there
                return optimizer.update(g, state, params, grad_fn=lambda p, i: again(p, g))
            return optimizer.update(g, state, params, value=value)

        for value, g in zip(VALUES, grads, strict=True):
            updates, state = update(g, state, params, value)
            params = optax.apply_updates(params, updates)
            path.append({name: np.asarray(x) for name, x in params.items()})
        return path


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
    "Rprop": (  # torch keeps step sizes in float32
        lambda o: o.rprop(RATE, 0.4, 1.3, 0.01, 0.06), lambda t: lambda p: t.Rprop(p, RATE, (0.4, 1.3), (0.01, 0.06)), 1e-7
    ),
    "Adafactor": (
        lambda o: o.adafactor(lambda t: nnp.minimum(RATE, 1 / nnp.sqrt(t + 1.0)), 1),
        lambda t: lambda p: t.Adafactor(p, RATE), 2e-5,  # its factors are floored elsewhere; its last axes are the factors
    ),
}  # fmt: skip


def torch_path(peer: Make, dtype: str) -> list[dict[str, np.ndarray]]:
    import torch  # noqa: PLC0415  an optional peer

    start, grads = problem(dtype)
    params = {key: torch.nn.Parameter(torch.tensor(x)) for key, x in start.items()}
    optimizer, path = peer(torch.optim)(list(params.values())), []
    for g in grads:
        for key, p in params.items():
            p.grad = torch.tensor(g[key])
        optimizer.step()
        path.append({key: p.detach().numpy().copy() for key, p in params.items()})
    return path


# -- recorded paths ----------------------------------------------------------------------------------------------------

RECORDED = Path(__file__).with_name("recorded_peers.npz")
KEPT_STEPS = (0, 6, STEPS - 1)  # the first step, one after which corrections of the start differ, and the last


def flat(params: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([params[name].ravel() for name in sorted(params)])


def recorded_path(peer: str, name: str) -> np.ndarray:
    """Parameters, one row for each of the kept steps, that a peer computed in float64."""
    with np.load(RECORDED) as file:
        return file[f"{peer}/{name}"]


def record() -> None:
    import optax  # noqa: PLC0415  an optional peer

    paths = {f"optax/{name}": optax_path(optax, make, "float64") for name, make in OPTAX.items()}
    for name, make in (("muon", MUON), ("adaptive muon", ADAPTIVE_MUON)):
        paths[f"optax/{name}"] = optax_path(optax, make, "float64")
    paths |= {f"torch/{name}": torch_path(peer, "float64") for name, (_, peer, _) in TORCH.items()}
    rows = {name: np.stack([flat(path[t]) for t in KEPT_STEPS]) for name, path in paths.items()}
    np.savez_compressed(RECORDED, **rows)


if __name__ == "__main__":
    record()
