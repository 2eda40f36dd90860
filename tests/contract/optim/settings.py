"""Settings of optimizers that Optax has, too: each makes nnc's of nnc.optim and Optax's of its modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STEPS = 20
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


def curvature(updates: Any, params: Any) -> Any:
    """Stands for the diagonal of a Hessian."""
    return {name: x * x + 0.125 for name, x in updates.items()}


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
    "polyak_sgd": lambda o: o.polyak_sgd(0.2, 0.5, 0.3, 0.1, "sps+"),
    "polyak_sgd of all gaps": lambda o: o.polyak_sgd(0.1, f_min=1.0),
    "momo": lambda o: o.momo(0.1),
    "momo with decay": lambda o: o.momo(RATE, 0.8, 0.4, 0.1, True),
    "momo by a schedule": lambda o: o.momo(o.linear_schedule(0.125, 0.0, 16), weight_decay=0.5),
    "momo_adam": lambda o: o.momo_adam(RATE),
    "momo_adam with decay": lambda o: o.momo_adam(RATE, 0.8, 0.9, 1e-3, 0.4, 0.1, True),
    "reduce_on_plateau": lambda o: o.chain(o.sgd(RATE), o.reduce_on_plateau(0.5, 2, cooldown=1)),
    "reduce_on_plateau of means": lambda o: o.chain(
        o.sgd(RATE), o.reduce_on_plateau(0.5, 1, 0.0, 0.5, accumulation_size=3, min_scale=0.25)
    ),
    "dog": lambda o: o.dog(init_step=("distance", 0.1), weight_decay=0.1, mask=ndim_mask),
    "dog by heuristic": lambda o: o.dog(0.5, ("heuristic", 0.01), 1e-3),
    "dog by learning rate": lambda o: o.dog(init_step=("learning_rate", RATE)),
    "dowg": lambda o: o.dowg(init_estim_sq_dist=0.01, weight_decay=0.1),
    "dowg by default": lambda o: o.dowg(0.5),
    "distance of each array": lambda o: o.chain(
        o.scale_by_distance_over_gradients(0.01, 1e-3, param_dtype="float64", global_scale=0.5), o.scale(-1.0)
    ),
    "cocob": lambda o: o.cocob(),
    "cocob with decay": lambda o: o.cocob(0.5, 10.0, 1e-2, 0.1, ndim_mask),
    "madgrad": lambda o: o.madgrad(RATE),
    "madgrad with decay": lambda o: o.madgrad(o.linear_schedule(0.125, 0.0, 16), 0.8, 0.1, 1e-3),
    "sm3": lambda o: o.sm3(RATE),
    "sm3 with decay": lambda o: o.chain(o.scale_by_sm3(0.8, 0.9, 1e-2), o.scale(-RATE)),
    "noisy_sgd": lambda o: o.noisy_sgd(RATE, 0.1, 0.6, key=3),
    "centralize": lambda o: o.chain(o.centralize(), o.sgd(RATE)),
    "normalize_by_update_norm": lambda o: o.chain(o.normalize_by_update_norm(2.0, 1e-3), o.sgd(RATE)),
    "scale_by_param_block_norm": lambda o: o.chain(o.scale_by_param_block_norm(1.5), o.sgd(RATE)),
    "keep_params_nonnegative": lambda o: o.chain(o.sgd(RATE), o.keep_params_nonnegative()),
    "zero_nans": lambda o: o.chain(o.zero_nans(), o.adam(RATE)),
    "conditionally_transform": lambda o: o.chain(o.conditionally_transform(o.trace(0.9), lambda t: t % 3 != 1), o.scale(-RATE)),
    "conditionally_mask": lambda o: o.conditionally_mask(o.adam(RATE), lambda t: t % 3 != 1),
    "monitor": lambda o: o.chain(o.monitor({"norm": o.measure_with_ema(o.global_norm, 0.9)}), o.sgd(RATE)),
    "named_chain": lambda o: o.named_chain(("moments", o.scale_by_adam()), ("step", o.scale(-RATE))),
    "flatten": lambda o: o.flatten(o.chain(o.clip_by_block_rms(0.5), o.adam(RATE))),
    "apply_every": lambda o: o.chain(o.sgd(RATE, 0.9), o.apply_every(3)),
    "selective_transform": lambda o: o.selective_transform(o.adam(RATE), freeze_mask={"w": True, "b": False, "k": False}),
    "accumulation that skips": lambda o: o.MultiSteps(
        o.adam(RATE), 3, should_skip_update_fn=lambda g, t, p: o.skip_large_updates(g, t, p, 30.0)
    ).gradient_transformation(),
    "mechanize": lambda o: o.mechanize(o.adam(RATE), s_init=0.1),
    "mechanize of few": lambda o: o.mechanize(o.sgd(RATE, 0.9), 0.1, 1e-3, 0.5, 2),
    "sophia": lambda o: o.sophia(RATE, hessian_diagonal_fn=o.stateless(curvature), gamma=0.5, update_interval=3),
    "sophia without clipping": lambda o: o.sophia(
        RATE, 0.8, 0.7, 0.5, 0.1, ndim_mask, 1.0, None, 1, hessian_diagonal_fn=o.stateless(curvature)
    ),
    "galore": lambda o: o.galore(RATE, 2, 4, 0.5, o.trace(0.9), 0.1, ndim_mask),
    "galore of arrays": lambda o: o.galore(
        RATE, 2, 7, base_optimizer=o.trace(0.9),
        weight_dimension_numbers={
            "w": o.GaLoreDimensionNumbers(1, 0), "b": None, "k": o.GaLoreDimensionNumbers((2, 0), 1),
        },
    ),
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
    "momo by a schedule",
    "accumulation that skips",
    "madgrad",  # Optax takes the root of the count in float32
    "madgrad with decay",
}


ROUGH = {"galore", "galore of arrays"}  # Optax decomposes matrices in float32

MUON: Make = lambda o: o.muon(RATE, weight_decay=0.1, adam_weight_decay=0.1)
ADAPTIVE_MUON: Make = lambda o: o.muon(RATE, adaptive=True, nesterov=False, beta=0.8)
