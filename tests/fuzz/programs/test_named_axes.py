"""Programs of custom rules, loops, branches and collectives within two named axes, against the same ones on rows without names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

SIZES = {"i": 2, "j": 3}  # unequal, so that one is not taken for the other
Value = Any
WHAT = (
    "unary",
    "unary",
    "placed",
    "placed",
    "pair",
    "pair",
    "binary",
    "constant",
    "psum",
    "cond",
    "same",
    "scan",
    "while",
    "checkpoint",
)


def _unary(kind: str, scale: float) -> Callable[[Value], Value]:
    """A function whose derivative is not the true one."""
    slope = lambda v: scale * nnp.cos(v) * v + 0.5
    if kind == "vjp":
        one = nnc.custom_vjp(lambda v: nnp.sin(v) + v)
        one.defvjp(lambda v: (nnp.sin(v) + v, v), lambda v, ct: (slope(v) * ct,))
        return one
    other = nnc.custom_jvp(lambda v: nnp.sin(v) + v)
    other.defjvp(lambda primals, tangents: (other(*primals), slope(*primals) * tangents[0]))
    return other


def _placed(kind: str, place: Callable[..., Value]) -> Callable[..., Value]:
    """A function whose rules ask for the number of the place: `place` of the other arguments."""
    if kind == "vjp":
        one = nnc.custom_vjp(lambda v, *rest: v * v * place(*rest))
        one.defvjp(
            lambda v, *rest: (v * v * place(*rest), (v, rest)),
            lambda kept, ct: (ct * nnp.sin(kept[0]) * (1 + place(*kept[1])), *(None for _ in kept[1])),
        )
        return one
    other = nnc.custom_jvp(lambda v, *rest: v * v * place(*rest))
    other.defjvp(lambda p, t: (other(*p), t[0] * nnp.sin(p[0]) * (1 + place(*p[1:]))))
    return other


def _pair(kind: str, place: Callable[..., Value], uses: str, scale: float) -> Callable[..., tuple[Value, Value]]:
    """A function of two outputs, of which the second varies as `place` does. Its rules read, by `uses`, one
    of the cotangents, or both, with the place or without.
    """
    both = lambda v, *rest: (nnp.sin(v) + v, v * place(*rest))
    first = lambda v, *rest: scale * nnp.cos(v) * v * (1 + place(*rest) if "placed" in uses else 1.5)
    second = lambda v, *rest: nnp.sin(v) * (1 + place(*rest)) if "both" in uses else 0.0
    if kind == "vjp":
        one = nnc.custom_vjp(both)

        def pull(kept: Value, cts: Value) -> Value:
            values, slope = kept
            found = cts[0] * slope
            return (found + cts[1] * second(*values) if "both" in uses else found, *(None for _ in values[1:]))

        one.defvjp(lambda *values: (both(*values), (values, first(*values))), pull)
        return one
    other = nnc.custom_jvp(both)
    other.defjvp(lambda p, t: (other(*p), (t[0] * first(*p), t[0] * second(*p))))
    return other


def _binary(kind: str) -> Callable[[Value, Value], Value]:
    if kind == "vjp":
        one = nnc.custom_vjp(lambda a, b: a * b)
        one.defvjp(lambda a, b: (a * b, (a, b)), lambda kept, ct: (ct * kept[1] * 2, ct * nnp.sin(kept[0])))
        return one
    other = nnc.custom_jvp(lambda a, b: a * b)
    other.defjvp(lambda p, t: (p[0] * p[1], 2 * t[0] * p[1] + nnp.sin(p[0]) * t[1]))
    return other


def _constant(kind: str) -> Callable[[Value], Value]:
    """A function that does not look at its argument, with a derivative all the same."""
    if kind == "vjp":
        one = nnc.custom_vjp(lambda v: nnp.asarray(0.5, dtype="float64"))
        one.defvjp(lambda v: (nnp.asarray(0.5, dtype="float64"), v), lambda v, ct: (ct * v,))
        return one
    other = nnc.custom_jvp(lambda v: nnp.asarray(0.5, dtype="float64"))
    other.defjvp(lambda p, t: (nnp.asarray(0.5, dtype="float64"), t[0] * p[0]))
    return other


class Named:
    """Runs a program at one place of the axes."""

    def __call__(self, fun: Callable[..., Value], *values: Value) -> Value:
        return fun(*values)

    def placed(self, kind: str, name: str, value: Value) -> Value:
        return _placed(kind, lambda: nnc.axis_index(name).astype("float64"))(value)

    def pair(self, kind: str, name: str, uses: str, scale: float, value: Value) -> Value:
        return _pair(kind, lambda: nnc.axis_index(name).astype("float64"), uses, scale)(value)

    def psum(self, value: Value, name: str) -> Value:
        return nnc.psum(value, name)

    def pmax(self, value: Value, name: str) -> Value:
        return nnc.pmax(value, name)


class Rows:
    """Runs it for the rows of all places, without names."""

    shape = tuple(SIZES.values())

    def __call__(self, fun: Callable[..., Value], *values: Value) -> Value:
        return nnc.vmap(nnc.vmap(fun))(*(nnp.broadcast_to(nnp.asarray(v), self.shape) for v in values))

    def placed(self, kind: str, name: str, value: Value) -> Value:
        index = np.arange(SIZES[name], dtype=np.float64)
        return self(_placed(kind, lambda index: index), value, index[:, None] if name == "i" else index)

    def pair(self, kind: str, name: str, uses: str, scale: float, value: Value) -> Value:
        index = np.arange(SIZES[name], dtype=np.float64)
        index = index[:, None] if name == "i" else index
        return self(_pair(kind, lambda index: index, uses, scale), value, index)

    def psum(self, value: Value, name: str) -> Value:
        whole = nnp.broadcast_to(nnp.asarray(value), self.shape)
        return nnp.broadcast_to(whole.sum("ij".index(name), keepdims=True), self.shape)

    def pmax(self, value: Value, name: str) -> Value:
        whole = nnp.broadcast_to(nnp.asarray(value), self.shape)
        return nnp.broadcast_to(whole.max("ij".index(name), keepdims=True), self.shape)


def program(seed: int) -> Callable[[Any, Value, Value, Value], Value]:
    """A random function (how, w, y, x): `w` is the same at all places, `y` varies over "i", `x` over both axes."""
    rng = np.random.default_rng(seed)
    steps: list[tuple[Any, ...]] = []
    first = str(rng.choice(["vjp", "jvp"]))
    for _ in range(int(rng.integers(3, 7))):
        kind = str(rng.choice(["vjp", "jvp"]))
        name, pick = str(rng.choice(["i", "j"])), [int(k) for k in rng.integers(0, 100, 3)]
        what = str(rng.choice(WHAT))
        steps.append((what, kind, name, pick, float(rng.uniform(0.5, 1.5))))

    def run(how: Any, w: Value, y: Value, x: Value) -> Value:
        values = [w, y, x]
        values.append(how(_unary(first, 1.2), w))  # the same at all places
        for what, kind, name, pick, scale in steps:
            a, b = values[pick[0] % len(values)], values[pick[1] % len(values)]
            unary, binary = _unary(kind, scale), _binary(kind)
            if what == "unary":
                found = how(unary, a)
            elif what == "placed":
                found = how.placed(kind, name, a)
            elif what == "pair":
                uses = ("one", "both", "placed", "placed both")[pick[2] % 4]
                pair = how.pair(kind, name, uses, scale, a)
                found = pair[pick[2] // 4 % 2] if pick[1] % 3 else how(lambda a, b: a + b, *pair)
            elif what == "binary":
                found = how(binary, a, b)
            elif what == "constant":
                found = how(_constant(kind), a)
            elif what == "psum":
                found = how.psum(how(unary, a), name) / 4
            elif what == "cond":  # the index varies
                found = how(
                    lambda p, a, b, u=unary: nnc.cond(p > 0, lambda a, b: u(a) * b, lambda a, b: nnp.sin(a) * b, a, b),
                    x,
                    a,
                    b,
                )
            elif what == "same":  # the index does not
                test = how.pmax(how.pmax(a, "i"), "j")
                found = how(
                    lambda p, a, b, f=binary: nnc.cond(p > 0, lambda a, b: f(a, b), lambda a, b: f(b, a) + a, a, b),
                    test,
                    a,
                    b,
                )
            elif what == "scan":
                found = how(
                    lambda a, b, f=binary, u=unary: nnc.scan(lambda c, _: (u(f(c, a)) * 0.5 + b, None), b, None, 2)[0],
                    a,
                    b,
                )
            elif what == "while":
                found = how(
                    lambda a, b, f=binary: nnc.while_loop(
                        lambda c: (c[0] < 3) & (abs(c[1]) < 2), lambda c: (c[0] + 1, c[1] + f(a, c[1]) * 0.3), (0, b)
                    )[1],
                    a, b,
                )  # fmt: skip
            else:
                found = how(nnc.checkpoint(lambda a, b, f=binary: f(nnp.sin(a), b)), a, b)
            values.append(found)
        return how(lambda last, x: nnp.tanh(last) * x, values[-1], x)

    return run


W, Y = np.float64(0.7), np.array([0.4, -0.9])
X = np.array([[0.3, -0.6, 0.8], [1.1, 0.5, -0.2]])


@pytest.mark.parametrize("seed", range(10))
def test_custom_rules_within_axes_are_those_of_the_rows(seed: int) -> None:
    run = program(seed)
    at_place = lambda w, y, x: run(Named(), w, y, x)
    over_j = lambda f: nnc.vmap(f, in_axes=(None, None, 0), axis_name="j")
    over_i = lambda f: nnc.vmap(f, in_axes=(None, 0, 0), axis_name="i")
    named = lambda w, y, x: over_i(over_j(at_place))(w, y, x)
    rows = lambda w, y, x: run(Rows(), w, y[:, None], x)
    point = (nnp.asarray(W), nnp.asarray(Y), nnp.asarray(X))

    def same(left: Any, right: Any) -> None:
        for a, b in zip(nnc.tree.leaves(left), nnc.tree.leaves(right), strict=True):
            np.testing.assert_allclose(np.broadcast_to(a, np.shape(b)), b, rtol=1e-9, atol=1e-11)

    same(named(*point), rows(*point))
    total = lambda f: lambda *p: nnp.sum(f(*p) ** 2)
    slopes = [nnc.grad(total(f), (0, 1, 2)) for f in (named, rows)]
    wanted = slopes[1](*point)
    same(slopes[0](*point), wanted)
    same(nnc.compile(slopes[0])(*point), wanted)
    inside = over_i(over_j(lambda w, y, x: nnc.grad(lambda *p: at_place(*p) ** 2, (0, 1, 2))(w, y, x)))(*point)
    same([inside[0][0, 0], inside[1][:, 0], inside[2]], wanted)
    assert np.ptp(np.asarray(inside[0])) == 0 and np.ptp(np.asarray(inside[1]), 1).max() == 0
    second = [nnc.grad(lambda *p, s=s: sum(nnp.sum(g * g) for g in s(*p)), (0, 2))(*point) for s in slopes]
    same(*second)
