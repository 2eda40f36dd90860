"""Errors of carries in unrolled loops, tolerances as they are given, and numbers in the fields of dataclasses."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, RetraceWarning, ShapeError, TreeError
from nnc.scipy.integrate import solve_ivp

UNROLL = pytest.mark.parametrize("unroll", [1, 2, 3, True])


@UNROLL
@pytest.mark.parametrize("reverse", [False, True])
def test_a_carry_that_changes_is_named_however_far_a_loop_is_unrolled(unroll: Any, reverse: bool) -> None:
    xs, ones = nnp.ones(4), nnp.ones(2)
    for step, problem in (
        (lambda c, x: (nnp.concatenate([c, c]), c), r"carry: float32\[2\] at first, float32\[4\] after an iteration"),
        (lambda c, x: (nnp.ones((3, 2)) @ c, x), r"carry: float32\[2\] at first, float32\[3\] after an iteration"),
        (lambda c, x: (c.astype("float16"), c), r"carry: float32\[2\] at first, float16\[2\] after an iteration"),
        (lambda c, x: (c[:1] if c.shape == (2,) else nnp.concatenate([c, c]), x), r"float32\[1\] after an iteration"),
    ):
        with pytest.raises(ShapeError, match=problem):
            nnc.scan(step, ones, xs, unroll=unroll, reverse=reverse)
    with pytest.raises(TreeError, match="the initial carry and the carry that"):
        nnc.scan(lambda c, x: ((c, c), x), ones, xs, unroll=unroll)
    with pytest.raises(ShapeError, match=r"float32\[2\] at first, float32\[4\] after an iteration"):
        nnc.fori_loop(0, 4, lambda i, c: nnp.concatenate([c, c]) if c.size == 2 else c[:2], ones, unroll=unroll)


@UNROLL
@pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
def test_weak_numbers_are_carried_however_far_a_loop_is_unrolled(unroll: Any, run: Callable[..., Any]) -> None:
    carry, ys = run(lambda xs: nnc.scan(lambda c, x: (c + x, c), 1, xs, unroll=unroll))(nnp.arange(5.0))
    assert carry == 11 and carry.dtype == ys.dtype == "float32"
    np.testing.assert_array_equal(ys, [1, 1, 2, 4, 7])
    back = run(lambda xs: nnc.scan(lambda c, x: (c + x, c), 1, xs, reverse=True, unroll=unroll))(nnp.arange(5.0))
    assert back[0] == 11
    np.testing.assert_array_equal(back[1], [11, 10, 8, 5, 1])
    assert run(lambda x: nnc.fori_loop(3, 8, lambda i, c: c * 2 + i, x, unroll=unroll))(nnp.asarray(1.0)) == 151


def test_a_tolerance_is_compared_as_it_is_given() -> None:
    decay = lambda t, y: -y
    for rtol in (1e-5, 0.00001):
        found = solve_ivp(decay, (0.0, 1.0), np.ones(1, np.float32), t_eval=[1.0], rtol=rtol, atol=1e-8).y
        assert abs(float(found[0, 0]) - np.exp(-1)) < 1e-5
    with pytest.raises(ArgumentError, match="rtol is 1e-06, less than"):
        solve_ivp(decay, (0.0, 1.0), np.ones(1, np.float32), t_eval=[1.0], rtol=1e-6)


@dataclasses.dataclass
class Training:
    w: Any
    step: int = 0
    width: int = nnc.nn.field(default=2, static=True)


class Model(nnc.nn.Module):
    w: Any
    step: int = 0


def test_a_counter_in_a_dataclass_is_traced_twice() -> None:
    kinds: tuple[Any, ...] = Training, Model
    for make in kinds:
        train = nnc.compile(lambda s: dataclasses.replace(s, w=s.w * 2 + s.step, step=s.step + 1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            state, expected = make(nnp.zeros(2)), 0.0
            for i in range(20):
                state, expected = train(state), expected * 2 + i
            assert train.cache_info().misses == 2 and state.step == 20 and state.step.dtype == "int64"
            np.testing.assert_allclose(state.w, expected)
            for i in range(20):
                assert train(make(nnp.zeros(2), i)).step == i + 1
        assert train.cache_info().misses == 2
        assert (train(make(nnp.ones(2, "float16"), 3)).w.dtype) == "float16", "the array is weak, as the number is"


def test_a_number_that_decides_a_shape_is_a_setting_undeclared() -> None:
    @dataclasses.dataclass
    class Heads:
        w: Any
        heads: int
        scale: int = 1

    f = nnc.compile(lambda m: m.w.reshape(m.heads, -1) * m.scale)
    for i in range(12):
        heads = (1, 2, 3, 6)[i % 4]
        found = f(Heads(nnp.arange(6.0), heads, i))
        np.testing.assert_array_equal(found, np.arange(6.0).reshape(heads, -1) * i)
    assert f.cache_info().misses == 5, "one for each shape, and the first"
    whole = Heads(nnp.arange(6.0), 2)
    split = lambda m: m.w.reshape(m.heads, -1).sum(0)
    for run in (nnc.checkpoint(split), nnc.compile(split), lambda m: nnc.cond(m.w[1] > 0, split, split, m)):
        np.testing.assert_array_equal(run(whole), [3, 5, 7])
    batch = dataclasses.replace(whole, w=nnp.ones((4, 6)))
    assert nnc.vmap(split)(batch).shape == (4, 3)
    last, rows = nnc.scan(lambda m, _: (m, split(m)), whole, None, 2)
    assert last.heads == 2 and rows.shape == (2, 3)


def test_a_setting_that_changes_is_named_with_both_values() -> None:
    def traced_anew(f: Any, make: Callable[[int], Any]) -> str:
        for i in range(7):
            f(make(i))
        with pytest.warns(RetraceWarning) as found:
            f(make(7))
        assert f.cache_info().misses == 8
        assert "PyTreeSpec" not in str(found[0].message)
        return str(found[0].message)

    text = traced_anew(nnc.compile(lambda d: d["m"][0].w[: d["m"][0].step]), lambda i: {"m": [Model(nnp.ones(9), i)]})
    assert 'argument d["m"][0].step changed from 6 to 7' in text and "nnp.asarray(7)" in text
    text = traced_anew(nnc.compile(lambda s: s.w * s.width), lambda i: Training(nnp.ones(2), 0, i))
    assert "argument s.width changed from 6 to 7" in text
    with pytest.raises(TreeError, match=r"\.step: 0 on the left, 1 on the right"):
        nnc.scan(lambda m, _: (m.replace(step=m.step + 1), None), Model(nnp.ones(2)), None, 3)


def test_numbers_that_are_settings_are_no_leaves_within_a_compiled_function() -> None:
    class Scaled(nnc.nn.Module):
        w: Any
        rate: float

    slope = nnc.compile(lambda m: nnc.grad(lambda m: (m.w * m.rate).sum())(m))
    mapped = nnc.compile(lambda s: nnc.tree.map(lambda x: x * 2, s))
    kept = nnc.compile(lambda m: m.replace(w=m.w * m.rate))
    for i in range(1, 5):
        found = slope(Scaled(nnp.ones(2), i / 2))
        assert found.rate == i / 2 and len(nnc.tree.leaves(found)) == 1
        np.testing.assert_array_equal(found.w, [i / 2, i / 2])
        assert mapped(Training(nnp.ones(2), i)).step == i and mapped(Model(nnp.ones(2), i)).step == i
        assert len(nnc.tree.leaves(kept(Scaled(nnp.ones(2), i / 2)))) == 1, "a rate is no parameter of the result"
