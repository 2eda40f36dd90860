"""Calls in which nearly equal numbers meet, branches that would never end where they are not taken, callbacks, and optimizers."""

from __future__ import annotations

from functools import partial
from typing import Any

from nnc.base import dtypes
from nnc.graph import TensorSpec
from nnc.testing.fuzz.offer import Call, Offer, Source

_NEAR = (  # the difference is a small part of the operands
    "{0} - {0} * {2}",
    "{0}.at[:{1}].add({0}[:{1}] * -{2})",
    "{0}.at[:{1}].subtract({0}[:{1}] * {2})",
    "{0}.at[np.arange({1})].add({0}[:{1}] * -{2})",
    "{0}.at[np.arange({1})[::-1]].add({0}[:{1}][::-1] * -{2})",
    "{0}.at[np.arange({1})].add(-{0}[:{1}]).at[np.arange({1})].add({0}[:{1}] * {3})",
    "{0}.at[np.arange({1}) // 2].add({0}[:{1}] * -{2})",
    "({0} + {3}) - {0}",
    "{0} * {2} + ({0} - {0} * 2)",
    "nnp.concatenate([{0}, {0} * -{2}]).reshape(2, -1).sum(0)",
)
_AFTER = (
    "h * h", "nnp.square(h)", "nnp.expm1(h)", "0.001 * h * h", "nnp.exp(h) * h", "nnp.sqrt(nnp.abs(h))", "h",
    "nnp.sqrt(nnp.sqrt(h * h))", "nnp.sqrt(nnp.abs(h * h * {2}))", "nnp.sqrt(nnp.abs(h * {0}))",  # large enough to be kept
)  # fmt: skip
_ENDLESS = (  # only where the operand is positive do the loops end
    "nnc.cond({0} > 0, lambda x: nnc.while_loop(lambda y: (y <= 0) | (y > 0.1), lambda y: y * 0.25, x), lambda x: x, {0})",
    "nnc.cond({0} > 0, lambda x: nnc.while_loop(lambda y: y != 1, lambda y: y + nnp.sign(1 - x) * 0 + (1 - y), x), "
    "lambda x: x * 2, {0})",
    "nnc.switch(({0} > 0).astype('int32'), [lambda x: x, "
    "lambda x: nnc.while_loop(lambda y: ~(y < 0.5), lambda y: nnp.where(x > 0, y * 0.5, y + 1), x)], {0})",
)
_DEEP = (
    "(lambda f: f(f, {0}, 20))(lambda f, x, d: x if d == 1 else "
    "nnc.cond({1}, lambda x: f(f, x, d - 1) * 1.01, lambda x: x, x))"
)
_CALLBACKS = (
    "nnc.pure_callback(lambda x: np.cos(x), nnc.ShapeDtypeStruct({0}.shape, {0}.dtype), nnc.stop_gradient({0}))",
    "nnc.pure_callback(lambda x: np.cos(x), nnc.ShapeDtypeStruct({0}.shape, {0}.dtype), nnc.stop_gradient({0}), "
    "vmap_method='expand_dims')",
    "nnc.pure_callback(lambda x, y: x * 2 + y, nnc.ShapeDtypeStruct({0}.shape, {0}.dtype), nnc.stop_gradient({0}), "
    "nnc.stop_gradient({1}), vmap_method='broadcast_all')",
)
SEEN = "(nnc.debug.callback(lambda x: seen.append(np.array(x)), {0}), {0})[1]"
_OPTIMIZERS = (
    "sgd({r}, momentum=0.9)", "sgd({r}, momentum=0.9, nesterov=True, weight_decay=0.1)", "adam({r})", "adam({r}, amsgrad=True)",
    "adamw({r})", "rmsprop({r}, centered=True)", "rmsprop({r}, momentum=0.9)", "adagrad({r})", "adadelta({r})", "lion({r})",
    "lamb({r})", "lars({r})", "radam({r}, threshold=1.5)", "nadam({r})", "yogi({r})", "adabelief({r})", "novograd({r})",
    "rprop(0.1)",
    "fromage({r})", "sm3({r})", "adamax({r})", "adan({r})", "ademamix({r})", "madgrad({r})", "sign_sgd({r})", "signum({r})",
    "schedule_free_sgd({r})", "optimistic_gradient_descent({r})", "clip({r})", "clip_by_global_norm({r})", "ema({r})",
    "clip_by_block_rms({r})", "adaptive_grad_clip({r})", "centralize()", "zero_nans()", "keep_params_nonnegative()",
    "adafactor({r}, min_dim_size_to_factor=2)", "lookahead(nnc.optim.sgd({r}), 2, 0.5)", "prodigy({r})", "dowg({r})",
)  # fmt: skip
_STEPS = (
    "(lambda o: o.update({1}, o.init({0}), {0})[0])({o})",
    "(lambda o: (lambda u, s: o.update({1} + u, s, {0} + u)[0])(*o.update({1}, o.init({0}), {0})))({o})",
    "(lambda o: nnc.scan(lambda c, g: (lambda u, s: ((c[0] + u, s), u))(*o.update(g, c[1], c[0])), ({0}, o.init({0})), "
    "nnp.stack([{1}, {1} * 2, -{1}]))[1])({o})",
)

_RATES = (  # assigned in a loop, in the dtype that they are to have
    "(lambda o: nnc.scan(lambda c, g: (lambda u, s: ((c[0] + u, s._replace(hyperparams=dict(learning_rate="
    "nnp.asarray(0.05, nnp.result_type({0}.dtype, 'float32'))))), u))(*o.update(g, c[1], c[0])), ({0}, o.init({0})), "
    "nnp.stack([{1}, {1} * 2]))[1])(nnc.optim.inject_hyperparams(nnc.optim.sgd)({2}))"
)


def wild_offers() -> list[Offer]:
    """Calls of these kinds."""
    return [
        *(Offer("nearly equal", partial(_near, text=text), 5.0) for text in _NEAR),
        *(Offer("loop in a branch", partial(_scalar, text=text), 6.0) for text in _ENDLESS),
        Offer("branches in branches", _deep, 3.0),
        *(Offer("nnc.pure_callback", partial(_callback, text=text), 4.0) for text in _CALLBACKS),
        Offer("nnc.debug.callback", _seen, 5.0),
        *(Offer("optimizer", partial(_optimized, text=text), 1.0) for text in _OPTIMIZERS),
        Offer("injected rates", partial(_optimized, text=None), 3.0),
    ]


def _float(source: Source, fits: Any = lambda spec: True) -> Any:
    """A real float that fits; None where there is none."""

    def accepts(spec: TensorSpec) -> bool:
        return bool(dtypes.is_float(spec.dtype) and fits(spec))

    x = source.pick(accepts)
    return x if accepts(source.spec(x)) else None


def _near(source: Source, text: str) -> Call | None:
    x = _float(source, lambda spec: spec.ndim >= 1 and spec.size > 0)
    if x is None:
        return None
    rows = source.spec(x).shape[0]
    count = source.rng.randint(1, max(1, rows // 4) if source.rng.random() < 0.7 else rows)
    factor = source.rng.choice((1.0, 0.999999, 1.000001, 0.9999))
    call = f"(lambda h: {source.rng.choice(_AFTER)})({text})"
    return call, (x, count, factor, source.rng.choice((1e-3, 1.0))), ()


def _scalar(source: Source, text: str) -> Call | None:
    x = _float(source, lambda spec: not spec.shape)
    return (text, (x,), ()) if x is not None else None


def _deep(source: Source) -> Call | None:
    x = None if source.is_mapped else _float(source)
    return (_DEEP, (x, source.rng.choice((True, False))), ()) if x is not None else None


def _callback(source: Source, text: str) -> Call | None:
    x = _float(source)
    if x is None:
        return None
    return text, (x, source.like(source.spec(x))) if "{1}" in text else (x,), ()


def _seen(source: Source) -> Call | None:
    return None if source.is_mapped else (SEEN, (source.pick(),), ())


def _optimized(source: Source, text: str | None) -> Call | None:
    x = _float(source)
    if x is None:
        return None
    rate: Any = source.number(whole=False) if source.rng.random() < 0.5 else 0.1
    step = source.rng.choice(_STEPS)
    call = _RATES if text is None else step.replace("{o}", "nnc.optim." + text.replace("{r}", "{2}"))
    return call, (x, source.like(source.spec(x)), rate), ()
