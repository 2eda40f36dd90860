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
from nnc.errors import ArgumentError, RetraceWarning, ShapeError, TraceError, TreeError
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


def test_a_counter_in_a_dataclass_is_traced_once() -> None:
    traced: list[int] = []

    @nnc.compile
    def train(state: Any) -> Any:
        traced.append(1)
        return dataclasses.replace(state, w=state.w + nnp.ones(state.width), step=state.step + 1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(20):
            assert train(Training(nnp.zeros(2), i)).step == i + 1
    assert len(traced) == 1
    assert train(Training(nnp.zeros(3), width=3)).width == 3
    state, steps = nnc.scan(lambda s, _: (train(s), s.step), Training(nnp.zeros(2)), None, 3)
    assert state.step == 3 and list(map(int, steps)) == [0, 1, 2]


def test_a_setting_that_changes_is_named_with_both_values() -> None:
    f = nnc.compile(lambda models: models["m"][0].w * models["m"][0].step)
    for i in range(7):
        f({"m": [Model(nnp.ones(2), i)]})
    with pytest.warns(RetraceWarning) as found:
        f({"m": [Model(nnp.ones(2), 7)]})
    text = str(found[0].message)
    assert 'argument models["m"][0].step changed from 6 to 7' in text and "nnp.asarray(7)" in text
    assert "PyTreeSpec" not in text
    with pytest.raises(TreeError, match=r"\.step: 0 on the left, 1 on the right"):
        nnc.scan(lambda m, _: (m.replace(step=m.step + 1), None), Model(nnp.ones(2)), None, 3)


def test_a_field_that_decides_in_python_says_how_it_is_declared() -> None:
    for decides in (lambda s: s.w if s.step else 0, lambda s: [s.w for _ in range(s.step)]):
        with pytest.raises(TraceError, match=r"step: int = nnc.nn.field\(static=True\)"):
            nnc.compile(decides)(Training(nnp.ones(2), 1))
