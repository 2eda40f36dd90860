"""Python numbers where they meet arrays: as arguments of compiled functions, carries, operands of branches, and static values."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.graph import TensorSpec
from nnc.testing.fuzz.offer import Call, Offer, Source

_FLOATS = (0.1, 1 / 3, -2.7, 0.3, 1e-3, 3.3, 16777217.0, 1e10 + 0.1, -0.0, 2.0)  # most have more digits than float32
_INTS = (3, -3, 7, 200, 255, 256, 300, -1, -129, 1000, 65536, 2**24 + 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**62)
_FITTING = (1, 2, 3, 5, 7, 100)
_LIMITS = {
    "bool": 1,
    "int8": 127,
    "uint8": 255,
    "int16": 2**15 - 1,
    "uint16": 2**16 - 1,
    "int32": 2**31 - 1,
    "uint32": 2**32 - 1,
}


def draw_numbers(rng: random.Random, whole: bool) -> tuple[Any, Any, Any]:
    """Three numbers of one type; the first is a plain one, as others may not fit into a dtype. NumPy's float64 is a Python
    number by its class.
    """
    if not whole:
        numbers = rng.sample(_FLOATS, 3)
        return tuple(map(np.float64, numbers) if rng.random() < 0.2 else numbers)  # type: ignore[return-value]
    return (rng.choice(_FITTING if rng.random() < 0.6 else _INTS), *rng.sample(_INTS, 2))  # type: ignore[return-value]


def number_for(source: Source, spec: TensorSpec) -> Any:
    """A Python number to meet a value: one that the program is given, or one that stands in it."""
    whole = not dtypes.is_inexact(spec.dtype) or source.rng.random() < 0.2
    if source.rng.random() < 0.7:
        return source.number(whole)
    most = _LIMITS.get(spec.dtype.name, 2**63 - 1)
    near = [k for k in _INTS if abs(k) <= 2 * most]
    return source.rng.choice(near if whole else _FLOATS)


_MEETINGS = (
    ("{0} > {1}", 6.0, "real"),
    ("{0} == {1}", 5.0, "any"),
    ("{0} + {1}", 8.0, "any"),
    ("{0} * {1}", 8.0, "any"),
    ("{1} - {0}", 5.0, "number"),
    ("{0} ** {1}", 2.0, "number"),
    ("nnp.where({0} > 0, {0}, {1})", 5.0, "real"),
    ("nnp.clip({0}, {1})", 4.0, "real"),
    ("nnp.maximum({0}, {1})", 5.0, "real"),
    ("nnp.full(2, {1}) * {0}.sum()", 4.0, "any"),
    ("nnp.full(2, {1})", 3.0, "float"),
    ("nnp.zeros(2, nnp.asarray(nnc.compile(lambda x: {1})({0})).dtype)", 3.0, "number"),
    ("nnp.zeros(2, nnc.vmap(lambda x: {1})(nnp.ravel({0})[:5]).dtype)", 3.0, "number"),
    ("{1} * nnp.arange(3) * nnp.sum({0})", 4.0, "float"),
    ("{0} * nnp.log(nnp.abs({1}) + 1)", 4.0, "double"),
    ("{0} + nn.softplus(nnp.sin({1}))", 4.0, "double"),
    ("{0} - nnp.mean(nnp.stack([{1}, 0.3]))", 4.0, "double"),
    ("nnp.full_like({0}, {1})", 4.0, "any"),
    ("nnp.append({0}, {1})", 3.0, "any"),
    ("nnp.pad(nnp.ravel({0}), 1, constant_values={1})", 3.0, "any"),
    ("nnp.isin({0}, {1})", 4.0, "any"),
    ("nnp.searchsorted(nnp.sort(nnp.ravel({0})), {1})", 4.0, "real"),
    ("nnp.ravel({0}).at[:1].set({1})", 5.0, "any"),
    ("nnp.ravel({0}).at[:1].add({1})", 4.0, "any"),
    ("nnc.vmap(lambda x, n: x * n, in_axes=(0, None))(nnp.ravel({0})[:5], {1})", 5.0, "any"),
    ("nnc.vmap(lambda x, n: x > n, in_axes=(0, None))(nnp.ravel({0})[:5], {1})", 5.0, "real"),
    ("nnc.cond(nnp.sum({0}) > 0, lambda x, n: x * n, lambda x, n: x - n, {0}, {1})", 6.0, "number"),
    ("nnc.cond(nnp.sum({0}) > 0, lambda x, n: x > n, lambda x, n: x == n, {0}, {1})", 5.0, "real"),
    ("nnc.checkpoint(lambda x, n: x * n)({0}, {1})", 5.0, "any"),
    ("nnc.compile(lambda x, n: x * n)({0}, {1})", 5.0, "any"),
    ("nnc.compile(lambda x, n: x > n)({0}, {1})", 5.0, "real"),
    ("nnc.scan(lambda n, x: (n * 0.7, n * x), {1}, nnp.ravel({0})[:5])[1]", 6.0, "float"),
    ("nnc.scan(lambda n, x: (n + 1, n > x), {1}, nnp.ravel({0})[:5])[1]", 5.0, "whole"),
    ("nnc.fori_loop(0, 3, lambda i, s: (s[0] + 1, nnp.where(s[1] < s[0], s[1] // 2, s[1])), ({1}, {0}))[1]", 6.0, "whole"),
    ("nnc.fori_loop(254, 258, lambda i, x: nnp.where(x < i, x, x // 2), {0})", 4.0, "whole"),
    ("nnc.while_loop(lambda s: s[0] < 258, lambda s: (s[0] + 1, nnp.where(s[1] < s[0], s[1], s[1] // 2)), (255, {0}))[1]",
     5.0, "whole"),
    ("nnc.fori_loop(0, 3, lambda i, s: (s[0] * 0.5, s[1] + s[0] * s[1]), ({1}, {0}))[1]", 5.0, "float"),
)  # fmt: skip
_ACCEPTS: dict[str, Callable[[dtypes.DType], bool]] = {
    "any": lambda d: True,
    "number": lambda d: not dtypes.is_bool(d),
    "real": lambda d: not dtypes.is_complex(d),
    "float": lambda d: dtypes.is_float(d),
    "double": lambda d: d == dtypes.float64,
    "whole": lambda d: not dtypes.is_inexact(d) and not dtypes.is_bool(d),
}


def weak_offers() -> list[Offer]:
    """Calls in which a Python number meets a value."""
    named = {"double": "formula of a number"}
    return [
        Offer(named.get(kind, "Python number"), partial(_meeting, text=text, kind=kind), weight)
        for text, weight, kind in _MEETINGS
    ]


def _meeting(source: Source, text: str, kind: str) -> Call | None:
    accepts = _ACCEPTS[kind]
    x = source.pick(lambda spec: bool(accepts(spec.dtype)))
    x = source.like(source.spec(x).update(dtype=dtypes.float64)) if kind == "double" else x
    spec = source.spec(x)
    if not accepts(spec.dtype):
        return None
    if kind == "double" or "{0}" not in text or (kind == "float" and "0.7" in text) or "0.5" in text:
        return text, (x, source.number(whole=False)), ()
    return text, (x, source.number(whole=True) if kind == "whole" else number_for(source, spec)), ()
