"""Numbers in fields of dataclasses that become operands of compiled functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.errors import ShapeError, TraceError


@dataclasses.dataclass
class Plain:
    w: Any
    n: int = 0
    m: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    w: Any
    n: int = 0
    m: int = 0


class Module(nnc.nn.Module):
    w: Any
    n: int | float = 0
    m: int | float = 0


Expression = Callable[[Any], Any]
_STEPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x // (y * y + 1),
    lambda x, y: x % (y * y + 2),
    lambda x, y: x / (y * y + 1),
    lambda x, y: nnp.where(y > 1, x, -x),
    lambda x, y: abs(x - y),
]
_LEAVES: list[Expression] = [lambda s: s.w, lambda s: s.n, lambda s: s.m, lambda s: 3]


def _combined(step: Callable[[Any, Any], Any], x: Expression, y: Expression) -> Expression:
    return lambda s: step(x(s), y(s))


expressions = st.recursive(
    st.sampled_from(_LEAVES),
    lambda inner: st.builds(_combined, st.sampled_from(_STEPS), inner, inner),
    max_leaves=6,
)


@given(expressions, st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=4, unique=True))
def test_freed_numbers_give_the_values_of_settings(expression: Expression, numbers: list[tuple[int, int]]) -> None:
    def value(s: Any) -> Any:
        return s.w + expression(s)

    freed = nnc.compile(value)
    for make in (Plain, Module):
        for n, m in numbers:
            state = make(nnp.asarray([0.5, -2.0]), n, m)
            expected = nnc.compile(value)(state)
            np.testing.assert_allclose(freed(state), expected, rtol=1e-6, atol=1e-6)
    assert freed.cache_info().misses <= 6


@pytest.mark.parametrize("make", [Plain, Slots, Module])
def test_freed_numbers_work_within_containers_by_name_and_donated(make: Any) -> None:
    f = nnc.compile(lambda a, *, b: (a["x"][0].w * b.n + b.m, b.w + a["x"][0].n), donate_argnums=0, donate_argnames="b")
    for i in range(6):
        first, second = f({"x": [make(nnp.ones(2), i)]}, b=make(nnp.ones(2), i * i, -i))
        np.testing.assert_array_equal((first, second), [[i * i - i] * 2, [1 + i] * 2])
    assert f.cache_info().misses == 2


def test_numbers_keep_all_digits_and_their_weakness() -> None:
    f = nnc.compile(lambda s: (s.w * s.n, s.m % 1000))
    for dtype in ("float16", "float64"):
        for n in (0.1, 0.2, 0.3):
            found = f(Module(nnp.ones(1, dtype), n, 1))[0]
            assert found.dtype == dtype and found[0] == np.asarray(n, dtype)
    for m in (2**62 + 1, 2**63, 2**70):
        assert int(f(Module(nnp.ones(1), 0.1, m))[1]) == m % 1000


def test_fields_that_change_with_shapes_stay_settings() -> None:
    f = nnc.compile(lambda s: s.w.reshape(s.n, s.n))
    for n in (1, 2, 3):
        assert f(Plain(nnp.ones(n * n), n)).shape == (n, n)
    assert f.cache_info().misses == 3


def test_bools_strings_and_declared_fields_stay_settings() -> None:
    @dataclasses.dataclass
    class Mode:
        w: Any
        flag: bool = False
        name: str = ""
        width: int = nnc.nn.field(default=1, static=True)

    f = nnc.compile(lambda s: s.w * 2 if s.flag or s.name == "b" or s.width == 2 else s.w)
    for changes, expected in (({}, 1), ({"flag": True}, 2), ({"name": "b"}, 2), ({"width": 2}, 2)):
        assert f(Mode(nnp.ones(()), **changes)) == expected
    assert f.cache_info().misses == 4


def test_a_program_of_freed_numbers_is_made_anew_where_a_captured_value_changes() -> None:
    scale = [2.0]
    f = nnc.compile(lambda s: s.w * s.n * scale[0])
    for factor in (2.0, 3.0):
        scale[0] = factor
        for n in (0, 1, 2, 0, 1):
            assert f(Plain(nnp.ones(()), n)) == n * factor
    assert f.cache_info().misses == 3
    f.cache_clear()
    assert f(Plain(nnp.ones(()), 4)) == 12 and f.cache_info().misses == 1


def test_explanations_and_limits_name_the_field() -> None:
    f = nnc.compile(lambda s: s.w * s.n, max_traces=2)
    f(Plain(nnp.ones(2), 1))
    f(Plain(nnp.ones(2), 2))
    assert "argument s.n changed from 1 to 2" in nnc.debug.explain(f)
    f(Plain(nnp.ones(2), 3))
    assert "the last call reused a program" in nnc.debug.explain(f)
    with pytest.raises(TraceError, match=r"max_traces=2: argument s\.m changed from 0 to 1"):
        f(Plain(nnp.ones(2), 3, 1))


def test_mistakes_are_those_of_a_trace_with_settings() -> None:
    def wrong(s: Any) -> Any:
        return s.w @ nnp.ones(3) * s.n

    f = nnc.compile(wrong)
    for n in range(3):
        with pytest.raises(ShapeError, match=r"return s\.w @ nnp\.ones\(3\) \* s\.n"):
            f(Plain(nnp.ones(2), n))
    assert f.cache_info().misses == 0
