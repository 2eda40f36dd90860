"""One row for each optimizer: how it is made, and its steps written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nnc import optim
from nnc.optim.totals import squared_norm
from tests.contract.optim import steps


@dataclass(frozen=True)
class Row:
    """`make(learning_rate)` is the optimizer; `reference()` a fresh stepper; `rate` one at which it converges.

    Rows without a reference are held against the recorded paths of peers alone.
    """

    name: str
    make: Callable[[Any], optim.GradientTransformation]
    reference: Callable[[], steps.Step] | None = None
    rate: float = 0.05
    waits: int = 0  # updates that come before the first step


def _rows() -> Iterator[Row]:
    yield Row("sgd", optim.sgd, steps.sgd)
    yield Row("sgd with momentum", lambda r: optim.sgd(r, momentum=0.9), lambda: steps.sgd(0.9))
    yield Row("sgd with nesterov", lambda r: optim.sgd(r, 0.9, True), lambda: steps.sgd(0.9, nesterov=True))
    yield Row(
        "sgd with everything",
        lambda r: optim.sgd(r, momentum=0.8, nesterov=True, dampening=0.3, weight_decay=0.01),
        lambda: steps.sgd(0.8, True, 0.3, 0.01),
    )
    yield Row("adam", optim.adam, steps.adam)
    yield Row(
        "adam with other decays",
        lambda r: optim.adam(r, 0.8, 0.9, 1e-3, 1e-2),
        lambda: steps.adam(0.8, 0.9, 1e-3, eps_root=1e-2),
    )
    yield Row("adam without momentum", lambda r: optim.adam(r, b1=0.0), lambda: steps.adam(0.0))
    yield Row(
        "adam with amsgrad", lambda r: optim.adam(r, b2=0.5, amsgrad=True), lambda: steps.adam(b2=0.5, amsgrad=True)
    )
    yield Row("adam with nesterov", lambda r: optim.adam(r, nesterov=True), lambda: steps.adam(nesterov=True))
    yield Row("adamw", lambda r: optim.adamw(r, weight_decay=0.02), lambda: steps.adam(weight_decay=0.02))
    yield Row(
        "lamb",
        lambda r: optim.lamb(r, weight_decay=0.02),
        lambda: steps.adam(eps=1e-6, weight_decay=0.02, layerwise=True),
    )
    yield Row("rmsprop", optim.rmsprop, steps.rmsprop, 0.02)
    yield Row(
        "rmsprop that starts at one",
        lambda r: optim.rmsprop(r, initial_scale=1.0),
        lambda: steps.rmsprop(initial_scale=1.0),
        0.02,
    )
    yield Row(
        "rmsprop with eps outside, corrected",
        lambda r: optim.rmsprop(r, eps=1e-3, eps_in_sqrt=False, bias_correction=True),
        lambda: steps.rmsprop(eps=1e-3, outside=True, corrected=True),
        0.02,
    )
    yield Row(
        "rmsprop, centered",
        lambda r: optim.rmsprop(r, eps=1e-2, centered=True, momentum=0.5),
        lambda: steps.rmsprop(eps=1e-2, centered=True, momentum=0.5),
        0.01,
    )
    yield Row(
        "rmsprop with nesterov",
        lambda r: optim.rmsprop(r, momentum=0.5, nesterov=True),
        lambda: steps.rmsprop(momentum=0.5, nesterov=True),
        0.01,
    )
    yield Row(
        "clipped by value", lambda r: optim.chain(optim.clip(0.5), optim.sgd(r)), lambda: steps.clipped(0.5, False)
    )
    yield Row(
        "clipped by norm",
        lambda r: optim.chain(optim.clip_by_global_norm(0.7), optim.sgd(r)),
        lambda: steps.clipped(0.7, True),
    )


def _relatives() -> Iterator[Row]:
    yield Row("nadam", optim.nadam, lambda: steps.adam(nesterov=True))
    yield Row("nadam that warms up", lambda r: optim.nadam(r, momentum_decay=4e-3), steps.nadam)
    yield Row("radam", lambda r: optim.radam(r, b2=0.8, threshold=4.1), lambda: steps.radam(0.8, 4.1))
    yield Row(
        "radam with nesterov",
        lambda r: optim.radam(r, b2=0.8, threshold=4.1, nesterov=True),
        lambda: steps.radam(0.8, 4.1, nesterov=True),
    )
    yield Row("adamax", optim.adamax, steps.adamax)
    yield Row("lion", lambda r: optim.lion(r, weight_decay=0.02), lambda: steps.lion(0.02), 0.04)
    yield Row("adagrad", optim.adagrad, steps.adagrad, 0.5)
    yield Row(
        "adagrad with eps outside",
        lambda r: optim.adagrad(r, 0.0, 1e-3, eps_in_sqrt=False),
        lambda: steps.adagrad(0.0, 1e-3, outside=True),
        0.5,
    )
    yield Row(
        "adadelta", lambda r: optim.adadelta(r, eps=1e-2, weight_decay=0.01), lambda: steps.adadelta(1e-2, 0.01), 1.0
    )
    yield Row("lars", lambda r: optim.lars(r, 0.01, trust_coefficient=0.1), lambda: steps.lars(0.01, 0.1), 0.5)
    yield Row("adafactor", lambda r: optim.adafactor(r, momentum=0.5), lambda: steps.adafactor(0.5), 0.2)
    yield Row(
        "adafactor with decay",
        lambda r: optim.adafactor(
            r, clipping_threshold=None, multiply_by_parameter_scale=False, weight_decay_rate=0.01
        ),
        lambda: steps.adafactor(scaled=False, weight_decay=0.01),
    )
    yield Row(
        "muon of vectors",
        lambda r: optim.muon(r, adam_weight_decay=0.02),
        lambda: steps.adam(nesterov=True, weight_decay=0.02),
    )


def _wrapped() -> Iterator[Row]:
    yield Row(
        "clipped by its own norm", lambda r: _chained(r, optim.clip_by_norm(0.7)), lambda: steps.clipped(0.7, True)
    )
    yield Row(
        "clipped by its mean square",
        lambda r: _chained(r, optim.clip_by_block_rms(0.7)),
        lambda: steps.clipped(0.7 * 3**0.5, True),
    )
    yield Row(
        "clipped by its weights",
        lambda r: _chained(r, optim.adaptive_grad_clip(0.1)),
        lambda: steps.clipped_by_weights(0.1),
        0.5,
    )
    yield Row("running mean", lambda r: _chained(r, optim.ema(0.9)), steps.mean)
    yield Row("masked", lambda r: optim.masked(optim.adam(r), True), steps.adam)
    yield Row("one group", lambda r: optim.multi_transform({"all": optim.adam(r)}, "all"), steps.adam)
    yield Row(
        "every gradient a step", lambda r: optim.MultiSteps(optim.adam(r), 1).gradient_transformation(), steps.adam
    )
    yield Row("steps if finite", lambda r: optim.apply_if_finite(optim.adam(r), 2), steps.adam)
    yield Row("halves", lambda r: optim.split_real_and_imaginary(optim.adam(r)), steps.adam)
    yield Row("injected", lambda r: optim.inject_hyperparams(optim.adam)(r, b1=0.8), lambda: steps.adam(0.8))
    yield Row(
        "lbfgs without a search", lambda r: optim.lbfgs(r, memory_size=2, linesearch=None), lambda: steps.lbfgs(2), 0.3
    )


def _chained(r: Any, transformation: optim.GradientTransformation) -> optim.GradientTransformation:
    return optim.chain(transformation, optim.sgd(r))


def _given(make: Callable[[Any], optim.GradientTransformation], **extra: Callable[[Any, Any], Any]) -> Any:
    """An optimizer whose update gets arguments that it needs, made of the updates and the parameters."""

    def wrapped(rate: Any) -> optim.GradientTransformation:
        inner = make(rate)

        def update(updates: Any, state: Any, params: Any = None) -> Any:
            values = {name: value(updates, params) for name, value in extra.items()}
            return inner.update(updates, state, params, **values)

        return optim.GradientTransformation(inner.init, update)

    return wrapped


def _height(updates: Any, params: Any) -> Any:
    """A value like a loss: 0 where all parameters are 0."""
    return optim.global_norm(params) ** 2


def _bowl(params: Any) -> Any:
    return squared_norm("bowl", params)


def _polyak(rate: Any) -> optim.GradientTransformation:
    return optim.chain(optim.scale_by_polyak(max_learning_rate=0.2), optim.scale_by_learning_rate(rate))


def _falling(rate: Any) -> optim.GradientTransformation:
    return optim.chain(optim.sgd(rate), optim.reduce_on_plateau(patience=400))


def _own_distance(rate: Any) -> optim.GradientTransformation:
    return optim.chain(optim.scale_by_distance_over_gradients(0.1), optim.scale_by_learning_rate(rate))


def _sharpness(rate: Any, **options: Any) -> optim.GradientTransformation:
    return optim.sam(optim.sgd(rate), optim.chain(optim.normalize(), optim.sgd(0.01)), **options)


def _recorded() -> Iterator[Row]:
    yield Row("yogi", optim.yogi)
    yield Row("adabelief", optim.adabelief)
    yield Row("adabelief with nesterov", lambda r: optim.adabelief(r, nesterov=True))
    yield Row("acprop", lambda r: optim.acprop(r, b2=0.9, weight_decay=0.01), rate=0.02)
    yield Row("novograd", lambda r: optim.novograd(r, weight_decay=0.01), rate=0.01)
    yield Row("prodigy", lambda r: optim.prodigy(r, estim_lr0=0.1), rate=1.0)
    yield Row("dadapt_adamw", lambda r: optim.dadapt_adamw(r, estim_lr0=0.1), rate=1.0)
    yield Row("schedule_free_adamw", optim.schedule_free_adamw)
    yield Row("schedule_free_sgd", optim.schedule_free_sgd)
    yield Row("adan", optim.adan)
    yield Row("adopt", optim.adopt, waits=1)
    yield Row("adopt with nesterov", lambda r: optim.adopt(r, b2=0.9, nesterov=True, use_clipping=False), waits=1)
    yield Row("ademamix", lambda r: optim.ademamix(r, b3=0.99, alpha=2.0), rate=0.02)
    yield Row("simplified_ademamix", lambda r: optim.simplified_ademamix(r, 0.9, alpha=0.5), rate=0.01)
    yield Row("sign_sgd", optim.sign_sgd, lambda: steps.lion(0.0, 0.0), 0.04)
    yield Row("signum", lambda r: optim.signum(r, 0.5), lambda: steps.lion(0.0, 0.5, 0.5), 0.04)
    yield Row("rprop", lambda r: optim.chain(optim.rprop(1.0), optim.scale_by_learning_rate(r, flip_sign=False)))
    yield Row("optimistic_gradient_descent", optim.optimistic_gradient_descent)
    yield Row("optimistic_adam", optim.optimistic_adam_v2)
    yield Row(
        "nadamw", lambda r: optim.nadamw(r, weight_decay=0.02), lambda: steps.adam(nesterov=True, weight_decay=0.02)
    )
    yield Row("adamaxw", optim.adamaxw)
    yield Row("amsgrad", optim.amsgrad)
    yield Row("fromage", optim.fromage)
    yield Row("cocob", optim.cocob, rate=1.0)
    yield Row("madgrad", optim.madgrad)
    yield Row("sm3", optim.sm3, rate=0.5)
    yield Row("dog", lambda r: optim.dog(r, ("heuristic", 0.1)), rate=1.0)
    yield Row("dowg", lambda r: optim.dowg(r, 0.1), rate=1.0)
    yield Row("distance of each array", _own_distance, rate=1.0)
    yield Row("polyak_sgd", _given(_polyak, value=_height), rate=1.0)
    yield Row("momo", _given(optim.momo, value=_height), rate=1.0)
    yield Row("momo_adam", _given(optim.momo_adam, value=_height), rate=0.1)
    yield Row("reduce_on_plateau", _given(_falling, value=_height), steps.sgd)
    yield Row("noisy_sgd", lambda r: optim.noisy_sgd(r, 1e-30, key=0), steps.sgd)
    yield Row("normalize_by_update_norm", lambda r: _chained(r, optim.normalize_by_update_norm(eps=0.1)), rate=0.5)
    yield Row("scale_by_param_block_norm", lambda r: _chained(r, optim.scale_by_param_block_norm()))
    yield Row("zero_nans", lambda r: _chained(r, optim.zero_nans()), steps.sgd)
    yield Row("centralize", lambda r: _chained(r, optim.centralize()), steps.sgd)
    yield Row(
        "conditionally_transform",
        lambda r: optim.chain(optim.conditionally_transform(optim.scale(2.0), lambda t: t % 2 == 1), optim.sgd(r)),
    )
    yield Row("conditionally_mask", lambda r: optim.conditionally_mask(optim.sgd(r), lambda t: t >= 0), steps.sgd)
    yield Row("monitor", lambda r: _chained(r, optim.monitor({"norm": optim.global_norm})), steps.sgd)
    yield Row("snapshot", lambda r: _chained(r, optim.snapshot("norm", optim.global_norm)), steps.sgd)
    yield Row("named_chain", lambda r: optim.named_chain(("step", optim.adam(r))), steps.adam)
    yield Row("flatten", lambda r: optim.flatten(optim.adam(r)), steps.adam)
    yield Row("apply_every", lambda r: optim.chain(optim.sgd(r), optim.apply_every(1)), steps.sgd)
    yield Row("selective_transform", lambda r: optim.selective_transform(optim.adam(r), freeze_mask=False), steps.adam)
    yield Row("mechanize", lambda r: optim.mechanize(optim.sgd(r), s_init=0.1), rate=1.0)
    yield Row("sophia", _given(lambda r: optim.sophia(r, gamma=1.0), obj_fn=lambda g, p: _bowl))
    yield Row("galore", lambda r: optim.galore(r, 2, 3))
    yield Row("sam of single steps", lambda r: _sharpness(r, sync_period=1), steps.sgd)
    yield Row(
        "sam in opaque mode",
        _given(lambda r: _sharpness(r, opaque_mode=True), grad_fn=lambda g, p: lambda q, i: g),
        steps.sgd,
    )


ROWS = [*_rows(), *_relatives(), *_wrapped(), *_recorded()]
