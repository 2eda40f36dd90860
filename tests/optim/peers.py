"""The optimizers that Optax and torch.optim have, too, and the paths that each of them takes.

python -m tests.optim.peers        records where the peers' paths lead, in recorded_peers.npz: Optax and PyTorch must be installed
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import optim

STEPS = 20
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


def sharpness(o: Any, **options: Any) -> Any:
    return o.sam(o.adam(RATE), o.chain(o.normalize(), o.sgd(0.1)), **options)


OPTAX |= {
    "yogi": lambda o: o.yogi(RATE),
    "yogi with other decays": lambda o: o.chain(o.scale_by_yogi(0.8, 0.6, 1e-2, 1e-3, 0.5), o.scale(-RATE)),
    "adabelief": lambda o: o.adabelief(RATE),
    "adabelief with nesterov": lambda o: o.adabelief(wave(o), 0.8, 0.9, 1e-6, 1e-4, nesterov=True),
    "acprop": lambda o: o.acprop(RATE, b2=0.9, eps_root=1e-4, weight_decay=0.1, mask=ndim_mask),
    "novograd": lambda o: o.novograd(RATE),
    "novograd with decay": lambda o: o.novograd(wave(o), 0.8, 0.5, 1e-3, 1e-2, 0.1),
    "prodigy": lambda o: o.prodigy(estim_lr0=0.01),
    "prodigy with decay": lambda o: o.prodigy(
        wave(o), (0.8, 0.9), 0.7, estim_lr0=0.1, estim_lr_coef=2.0, weight_decay=0.1, safeguard_warmup=True
    ),
    "dadapt_adamw": lambda o: o.dadapt_adamw(estim_lr0=0.01),
    "dadapt_adamw with decay": lambda o: o.dadapt_adamw(o.linear_schedule(1.0, 0.1, STEPS), (0.8, 0.9), 1e-3, 0.1, 0.1),
    "schedule_free_adamw": lambda o: o.schedule_free_adamw(RATE, 5, b1=0.8, weight_decay=0.1),
    "schedule_free_sgd": lambda o: o.schedule_free_sgd(RATE, weight_decay=0.1),
    "schedule_free": lambda o: o.schedule_free(o.rmsprop(RATE), wave(o), 0.7, 1.0),
    "adan": lambda o: o.adan(RATE, weight_decay=0.1),
    "adan with other decays": lambda o: o.adan(RATE, 0.8, 0.7, 0.9, 1e-3, 1e-2, mask=ndim_mask),
    "adopt": lambda o: o.adopt(RATE),
    "adopt with nesterov": lambda o: o.adopt(RATE, 0.8, 0.9, 0.5, nesterov=True, use_clipping=False),
    "adopt with a limit": lambda o: o.adopt(RATE, clip_value_fn=lambda count: 0.5 + 0.125 * count),
    "ademamix": lambda o: o.ademamix(RATE, b3=0.99, weight_decay=0.1),
    "ademamix that warms up": lambda o: o.ademamix(
        RATE, 0.8, 0.9, o.linear_schedule(0.5, 0.875, 8), o.linear_schedule(0.0, 4.0, 16), 1e-3, 1e-3
    ),
    "simplified_ademamix": lambda o: o.simplified_ademamix(RATE / 10, alpha=2.0, weight_decay=0.1),
    "simplified_ademamix that warms up": lambda o: o.simplified_ademamix(RATE, 0.8, alpha=o.linear_schedule(0.0, 4.0, 16)),
    "sign_sgd": lambda o: o.sign_sgd(RATE),
    "signum": lambda o: o.signum(RATE, 0.8),
    "optimistic_gradient_descent": lambda o: o.optimistic_gradient_descent(RATE, 0.8, 0.6),
    "optimistic_adam": lambda o: o.optimistic_adam(RATE, 0.01),
    "optimistic_adam_v2": lambda o: o.optimistic_adam_v2(RATE, alpha=0.9, beta=0.5, nesterov=False),
    "nadamw": lambda o: o.nadamw(RATE, weight_decay=0.1),
    "adamaxw": lambda o: o.adamaxw(RATE, weight_decay=0.1, mask=ndim_mask),
    "amsgrad without corrections": lambda o: o.amsgrad(RATE, b2=0.9, bias_correction_mu=False, bias_correction_nu=False),
    "fromage": lambda o: o.fromage(RATE),
    "fromage by a schedule": lambda o: o.fromage(wave(o), 2.0),
    "decay by a schedule": lambda o: o.adamw(RATE, weight_decay=wave(o), mask=ndim_mask),
    "sam": sharpness,
    "sam that keeps its state": lambda o: o.sam(o.adamw(RATE), o.sgd(0.1, 0.9), 3, False),
    "sam in opaque mode": lambda o: sharpness(o, sync_period=3, opaque_mode=True),
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
    "adabelief with nesterov",
    "novograd with decay",
    "prodigy with decay",
    "schedule_free_adamw",
    "schedule_free",
    "dadapt_adamw with decay",
    "fromage by a schedule",
    "decay by a schedule",
}


class Names:
    """The names of Optax, whichever module holds them; nnc.optim has all of them."""

    def __init__(self, optax: Any) -> None:
        self._modules = (optax, optax.contrib, optax.transforms)

    def __getattr__(self, name: str) -> Any:
        return next(getattr(module, name) for module in self._modules if hasattr(module, name))


MUON: Make = lambda o: o.muon(RATE, weight_decay=0.1, adam_weight_decay=0.1)
ADAPTIVE_MUON: Make = lambda o: o.muon(RATE, adaptive=True, nesterov=False, beta=0.8)


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
