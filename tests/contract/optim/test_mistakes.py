"""Users' mistakes with optimizers, and the messages for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc.numpy as nnp
from nnc import nn, optim
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, MissingNameError, NncError, ShapeError, TreeError
from nnc.errors.names import TABLES, code_of

PARAMS = {"w": nnp.ones(2), "b": nnp.ones(())}

MISTAKES: dict[str, tuple[Callable[[], Any], type[NncError], str]] = {
    "the rate is called lr": (lambda: optim.adam(lr=1e-3), ArgumentTypeError, "write learning_rate="),
    "decays are called betas": (lambda: optim.adamw(1e-3, betas=(0.9, 0.99)), ArgumentTypeError, "write b1=..., b2="),
    "adam has no weight decay": (lambda: optim.adam(1e-3, weight_decay=0.1), ArgumentTypeError, "adamw"),
    "epsilon is called eps": (lambda: optim.rmsprop(1e-3, epsilon=1e-5), ArgumentTypeError, "write eps="),
    "parameters go to init": (lambda: optim.sgd(PARAMS), ArgumentTypeError, "learning_rate is a dict"),
    "an array of parameters goes to init": (lambda: optim.sgd(nnp.ones(3)), ArgumentTypeError, "init\\(params\\)"),
    "the rate is a string": (lambda: optim.sgd("0.1"), ArgumentTypeError, "learning_rate is a str"),
    "the rate is negative": (lambda: optim.sgd(-0.1), ArgumentError, "learning_rate is -0.1"),
    "the rate is not a number": (lambda: optim.sgd(float("nan")), ArgumentError, "learning_rate is nan"),
    "momentum is one": (lambda: optim.sgd(0.1, momentum=1.0), ArgumentError, "momentum is 1.0"),
    "nesterov without momentum": (lambda: optim.sgd(0.1, nesterov=True), ArgumentError, "momentum=0.9"),
    "dampening without momentum": (lambda: optim.sgd(0.1, dampening=0.5), ArgumentError, "momentum=0.9"),
    "rmsprop, nesterov without momentum": (lambda: optim.rmsprop(0.1, nesterov=True), ArgumentError, "momentum=0.9"),
    "b2 is above one": (lambda: optim.adam(0.1, b2=1.5), ArgumentError, "b2 is 1.5"),
    "nesterov with amsgrad": (lambda: optim.adam(0.1, nesterov=True, amsgrad=True), ArgumentError, "exclude"),
    "a norm of zero": (lambda: optim.clip_by_global_norm(0.0), ArgumentError, "max_norm is 0.0"),
    "a list of links": (lambda: optim.chain([optim.clip(1.0), optim.sgd(0.1)]), ArgumentTypeError, "argument 0"),
    "a link that was not called": (lambda: optim.chain(optim.identity), ArgumentTypeError, "return"),
    "epochs for steps": (lambda: optim.linear_schedule(0.0, 1.0, 0), ArgumentError, "count updates, not epochs"),
    "a schedule's steps are a float": (lambda: optim.cosine_decay_schedule(1.0, 10.5), ArgumentError, "decay_steps"),
    "the warm-up is longer than all": (
        lambda: optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 10), ArgumentError, "total number",
    ),
    "boundaries do not fit": (lambda: optim.join_schedules([lambda t: t], [3]), ArgumentError, "one boundary less"),
    "a number among schedules": (lambda: optim.join_schedules([0.1, lambda t: t], [3]), ArgumentTypeError, "constant_schedule"),
    "an array of strings": (lambda: optim.adam(0.1).init({"x": np.array(["a"])}), DTypeError, "a leaf has dtype <U1"),
    "a number for a schedule": (lambda: optim.scale_by_schedule(0.1), ArgumentTypeError, "use scale"),
    "torch's spelling of a decay": (lambda: optim.radam(0.1, weight_decay=0.1), ArgumentTypeError, "add_decayed_weights"),
    "torch's spelling for adagrad": (lambda: optim.adagrad(lr=0.1), ArgumentTypeError, "write learning_rate="),
    "betas of lion": (lambda: optim.lion(0.1, betas=(0.9, 0.99)), ArgumentTypeError, "write b1=..., b2="),
    "rho is one": (lambda: optim.adadelta(1.0, rho=1.0), ArgumentError, "rho is 1.0"),
    "a size of zero": (lambda: optim.adafactor(0.1, 0), ArgumentError, "factored=False"),
    "no memory": (lambda: optim.lbfgs(memory_size=0), ArgumentError, "memory_size is 0"),
    "a search by its name": (lambda: optim.lbfgs(linesearch="strong_wolfe"), ArgumentTypeError, "linesearch is 'strong_wolfe'"),
    "an unknown first guess": (
        lambda: optim.scale_by_zoom_linesearch(5, initial_guess_strategy="two"), ArgumentError, "choose",
    ),
    "no gradients in a step": (lambda: optim.MultiSteps(optim.sgd(0.1), 0), ArgumentError, "every_k_schedule is 0"),
    "an optimizer's class": (lambda: optim.MultiSteps(optim.sgd, 2), ArgumentTypeError, "opt is"),
    "never in step": (lambda: optim.lookahead(optim.sgd(0.1), 0, 0.5), ArgumentError, "sync_period is 0"),
    "negative patience": (lambda: optim.apply_if_finite(optim.sgd(0.1), -1), ArgumentError, "max_consecutive_errors"),
    "a scale of zero": (lambda: optim.StaticLossScale(0.0), ArgumentError, "loss_scale is 0.0"),
    "a scale that does not grow": (lambda: optim.DynamicLossScale(factor=1.0), ArgumentError, "factor above 1"),
    "an unknown interpolation": (
        lambda: optim.piecewise_interpolate_schedule("cubic", 1.0, {}), ArgumentError, "interpolate_type is 'cubic'",
    ),
    "the decay of a mean is two": (lambda: optim.ema(2.0), ArgumentError, "decay is 2.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistake_is_named_with_a_remedy(name: str) -> None:
    call, kind, text = MISTAKES[name]
    with pytest.raises(kind, match=text) as error:
        call()
    assert "Fix:" in str(error.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SGD", "nnc.optim.sgd"),
        ("StepLR", "nnc.optim.exponential_decay"),
        ("clip_grad_norm_", "nnc.optim.chain"),
        ("huber_loss", "nnc.nn.huber"),
        ("sigmoid_focal_loss", "nnc.nn.sigmoid_focal_loss"),
    ],
)
def test_names_of_other_libraries_are_answered_with_those_of_nnc(name: str, meant: str) -> None:
    with pytest.raises(MissingNameError, match=f"nnc.optim: it has no {name!r}.(.|\n)*use {meant}"):
        getattr(optim, name)


@pytest.mark.parametrize("name", [name for name in TABLES["optax"] if name.endswith(("loss", "entropy", "divergence"))])
def test_losses_of_optax_are_answered_with_losses_that_there_are(name: str) -> None:
    own = code_of(TABLES["optax"][name]).removeprefix("nnc.nn.").partition("(")[0]
    with pytest.raises(MissingNameError, match=f"use nnc.nn.{own}"):
        getattr(optim, name)
    assert callable(getattr(nn, own))


def test_updating_without_parameters_where_they_are_read_raises() -> None:
    for optimizer in (
        optim.adamw(0.1), optim.lamb(0.1), optim.sgd(0.1, weight_decay=0.1), optim.lars(0.1), optim.lion(0.1), optim.muon(0.1),
        optim.adafactor(0.1), optim.lbfgs(linesearch=None), optim.chain(optim.adaptive_grad_clip(0.1)), optim.novograd(0.1),
        optim.acprop(0.1),
    ):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match=r"update\(grads, state, params\)"):
            optimizer.update(PARAMS, optimizer.init(PARAMS))


def test_gradients_of_another_structure_list_the_paths() -> None:
    optimizer = optim.adam(0.1)
    with pytest.raises(TreeError, match=r'\["b"\]'):
        optimizer.update({"w": nnp.ones(2)}, optimizer.init(PARAMS))
    with pytest.raises(TreeError, match=r'\["b"\]'):
        optim.apply_updates(PARAMS, {"w": nnp.ones(2)})


def test_gradients_of_another_shape_are_not_broadcast() -> None:
    optimizer = optim.adam(0.1)
    with pytest.raises(ShapeError, match=r'\["w"\]'):
        optimizer.update({"w": nnp.ones((2, 2)), "b": nnp.ones(())}, optimizer.init(PARAMS))
    with pytest.raises(ShapeError, match=r'\["w"\]'):
        optim.apply_updates(PARAMS, {"w": nnp.ones(1), "b": nnp.ones(())})


def test_the_state_of_another_optimizer_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="ScaleByAdamState"):
        optim.adam(0.1).update(PARAMS, optim.rmsprop(0.1).init(PARAMS))
    with pytest.raises(ArgumentTypeError, match="1 parts for 2"):
        optim.adam(0.1).update(PARAMS, optim.sgd(0.1).init(PARAMS))
    with pytest.raises(ArgumentTypeError, match="its state is a dict"):
        optim.adam(0.1).update(PARAMS, PARAMS)


def test_a_mask_that_does_not_fit_names_the_place() -> None:
    optimizer = optim.adamw(0.1, mask={"w": True})
    with pytest.raises(TreeError, match=r"\['b'\]"):
        optimizer.update(PARAMS, optimizer.init(PARAMS), PARAMS)


def test_init_without_parameters_raises() -> None:
    with pytest.raises(ArgumentTypeError, match="were not given"):
        optim.adam(0.1).init(None)


def test_a_mistake_in_a_step_leaves_the_parameters_untouched() -> None:
    before = np.asarray(PARAMS["w"]).copy()
    optimizer = optim.sgd(0.1)
    updates, _ = optimizer.update(PARAMS, optimizer.init(PARAMS), PARAMS)
    optim.apply_updates(PARAMS, updates)
    assert np.array_equal(PARAMS["w"], before)


def test_limits_of_a_number_are_named_where_there_are_two() -> None:
    with pytest.raises(ArgumentError, match="b1 is 1.5; it must be at least 0 and below 1"):
        optim.adam(0.1, b1=1.5)
    with pytest.raises(ArgumentError, match=r"eps is -1.0; it must be at least 0\."):
        optim.adam(0.1, eps=-1.0)
