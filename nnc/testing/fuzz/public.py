"""Calls of public functions, whose arguments are drawn by the names and annotations of their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import nnc.nn as nn
import nnc.numpy as nnp
from nnc import optim, scipy
from nnc import random as draws
from nnc.graph import TensorSpec
from nnc.testing.fuzz.offer import SORTED, Call, Offer, Source, related
from nnc.testing.fuzz.program import Code, Ref
from nnc.testing.fuzz.settings import SKIP, draw_setting
from nnc.testing.fuzz.weak import number_for

_SCIPY = (
    *(getattr(scipy, name) for name in ("special", "linalg", "signal", "fft", "ndimage", "integrate")),
    *(getattr(scipy.stats, name) for name in ("beta", "cauchy", "chi2", "expon", "gamma", "geom", "laplace", "logistic", "norm",
                                              "pareto", "poisson", "t", "uniform", "vonmises")),
)  # fmt: skip
_MODULES = {
    "nnp": nnp, "nnp.linalg": nnp.linalg, "nnp.fft": nnp.fft, "nn": nn, "random": draws, "nnc.optim": optim,
    **{module.__name__: module for module in _SCIPY},
}  # fmt: skip
# these define public functions; they import more
_HOMES = ("nnc.numpy", "nnc.nn", "nnc.random", "nnc.scipy", "nnc.optim")
_LEFT_OUT = {
    "from_dlpack": "it takes memory of other libraries",
    "empty": "its elements are undefined",
    "empty_like": "its elements are undefined",
    "searchsorted": "it wants sorted steps, under a name that tells nothing; the command has its turn",
}
_ARRAYS = ("arrays", "operands")
_CALLED = (
    "func",
    "func1d",
    "function",
    "pyfunc",
    "mask_func",
    "funclist",
    "jac",
    "iter",
    "buffer",
    "model",
    "module",
    "obj",
)


def public_offers() -> list[Offer]:
    """An offer for each public function whose arguments are known how to draw."""
    offers = []
    for module_name, module in _MODULES.items():
        for name in getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]:
            params = None if name in _LEFT_OUT else _parameters(getattr(module, name))
            if params is not None:
                full = f"{module_name}.{name}"
                offers.append(Offer(full, partial(_public_call, name=full, params=params)))
    return offers


@cache
def _parameters(function: Any) -> tuple[inspect.Parameter, ...] | None:
    """The parameters of a function of arrays; None of anything else."""
    home = getattr(function, "__module__", "")
    if not callable(function) or inspect.isclass(function) or not home.startswith(_HOMES):
        return None
    params = tuple(inspect.signature(function).parameters.values())
    if any(p.name in _CALLED or p.name == "graphs" for p in params) or not params:
        return None
    return params


def _public_call(source: Source, name: str, params: Sequence[inspect.Parameter]) -> Call | None:
    rng = source.rng
    args: list[Any] = []
    settings: list[tuple[str, Any]] = []
    specs: list[TensorSpec] = []
    base: TensorSpec | None = None
    for p in params:
        kind = str(p.annotation).strip("'")
        required = p.default is p.empty
        if p.kind is p.VAR_KEYWORD:
            continue
        if p.kind is p.VAR_POSITIONAL:
            args += [related(source, base) for _ in range(rng.randint(1, 3))]
            continue
        if not required and rng.random() < 0.75:
            continue
        if p.name == "key":
            args.append(Code(f"random.key({rng.randrange(9)})"))
            continue
        if p.name in _ARRAYS:
            value: Any = [related(source, base) for _ in range(rng.randint(1, 3))]
            specs += [source.spec(x) for x in value]
            base = specs[0]
        else:
            value = draw_setting(rng, p.name, kind, specs)
            if value is SKIP and required and kind in ("Any", "ArrayLike"):
                value = related(source, base)
                specs.append(source.spec(value))
                base = base or specs[0]
                if p.name in SORTED:
                    value = Code("nnp.sort(nnp.ravel({0}))", (value,))
                if rng.random() < 0.1 and len(args) < 2:
                    spec = source.spec(value) if isinstance(value, Ref) else specs[0]
                    value = number_for(source, spec) if rng.random() < 0.6 else rng.choice((2, 3, 0.5, -1.5, True, 1))
            elif value is SKIP:
                if required:
                    return None
                continue
        if required and p.kind is not p.KEYWORD_ONLY:
            args.append(value)
        else:
            settings.append((p.name, value))
    return (name, tuple(args), tuple(settings)) if specs else None
