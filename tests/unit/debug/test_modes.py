"""check_finite, eager and trace_errors."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import NotFiniteError, ShapeError


def bad(x: Any) -> Any:
    y = x + 1
    z = nnp.log(y - 1)  # the culprit, where x is 0 or less
    return nnp.sum(z * 0)


WRAPPERS = {
    "eager": lambda f: f,
    "compiled": nnc.compile,
    "differentiated": nnc.grad,
    "both": lambda f: nnc.compile(nnc.value_and_grad(f)),
    "rows": lambda f: lambda x: nnc.compile(nnc.vmap(f, axis_size=1, in_axes=None))(x),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_the_first_command_and_line_are_named(wrap: Any) -> None:
    with nnc.debug.check_finite(), pytest.raises(NotFiniteError, match=r"log: 1 of 1 elements") as caught:
        wrap(bad)(-1.0)
    text = str(caught.value)
    assert "the culprit" in text and "NaN" in text and "input 0 float64[] from -1 to -1" in text
    assert isinstance(caught.value, FloatingPointError)


def test_programs_are_ordinary_again_after_the_block() -> None:
    fun = nnc.compile(bad, max_traces=1)
    assert np.isnan(fun(-1.0))
    for _ in range(2):
        with nnc.debug.check_finite(), pytest.raises(NotFiniteError):
            fun(-1.0)
        assert np.isnan(fun(-1.0))
    with nnc.debug.check_finite():
        assert float(fun(1.0)) == 0
    assert fun.cache_info().misses == 1


LOOPS = {
    "fori": lambda x: nnc.fori_loop(0, 4, lambda i, c: nnp.sqrt(c - 1), x),
    "while": lambda x: nnc.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, nnp.sqrt(c[1] - 1)), (0, x))[1],
    "scan": lambda x: nnc.scan(lambda c, _: (nnp.sqrt(c - 1), c), x, length=4)[0],
    "cond": lambda x: nnc.cond(x > 0, lambda v: nnp.sqrt(v - 4), lambda v: v, x),
    "vmap": lambda x: nnc.vmap(lambda v: nnp.sqrt(v - 4))(nnp.stack([x, x + 4]))[0],
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("differentiated", [False, True])
def test_loops_branches_and_rows_are_looked_into(name: str, differentiated: bool) -> None:
    fun: Any = nnc.grad(LOOPS[name]) if differentiated else LOOPS[name]
    with nnc.debug.check_finite(), pytest.raises(NotFiniteError, match="sqrt"):
        nnc.compile(fun)(3.0)


def test_infinities_that_are_written_and_nan_that_is_removed_are_fine() -> None:
    def masked(x: Any) -> Any:
        scores = nnp.where(nnp.asarray([True, False]), x, -nnp.inf)
        return nnp.sum(nnc.nn.softmax(scores))

    with nnc.debug.check_finite():
        assert float(nnc.compile(masked)(1.0)) == 1
        assert float(masked(1.0)) == 1
        assert float(nnp.nan_to_num(nnp.asarray(np.nan))) == 0


def test_nan_that_came_in_is_told_from_nan_that_was_made() -> None:
    with nnc.debug.check_finite(), pytest.raises(NotFiniteError, match="an operand held NaN already"):
        nnc.compile(lambda x: x * 2)(np.float32(np.nan))


def test_an_overflow_is_an_infinity_that_was_made() -> None:
    with nnc.debug.check_finite(), pytest.raises(NotFiniteError, match="infinity"):
        nnp.exp(nnp.asarray([1000.0]))


def test_the_variables_of_a_dynamic_graph_are_looked_at() -> None:
    g = nnc.DynamicGraph()
    x = g.variable(0.0)
    assert float(nnp.log(x)) == -np.inf  # which is kept, but looked at all the same
    with nnc.debug.check_finite(), pytest.raises(NotFiniteError, match="log"):
        nnp.log(x)


def test_other_threads_are_not_concerned() -> None:
    found: list[float] = []
    with nnc.debug.check_finite():
        thread = threading.Thread(target=lambda: found.append(float(nnp.log(0.0))))
        thread.start()
        thread.join()
    assert found == [-np.inf]


def test_eager_runs_compiled_functions_on_values() -> None:
    seen: list[Any] = []

    @nnc.compile
    def fun(x: Any) -> Any:
        seen.append(type(x).__name__)
        return x * 2 if x > 0 else x  # decides on a value

    with nnc.debug.eager():
        assert float(fun(nnp.asarray(2.0))) == 4 and float(fun(nnp.asarray(-2.0))) == -2
    assert seen == ["Array", "Array"] and fun.cache_info().misses == 0


def test_breakpoints_in_eager_functions_show_values(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def hook(*args: Any, **kwargs: Any) -> None:
        values = sys._getframe(1).f_locals
        seen.append(float(nnc.stop_gradient(values["y"])))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    def fun(x: Any) -> Any:
        y = x * 3
        breakpoint()  # noqa: T100
        return y * y

    assert float(nnc.grad(fun)(2.0)) == 36
    g = nnc.DynamicGraph()
    x = g.variable(2.0)
    g.backward(fun(x))
    with nnc.debug.eager():
        nnc.compile(fun)(2.0)
    assert seen == [6.0, 6.0, 6.0]


def test_trace_errors_shows_the_frames_of_nnc() -> None:
    fun = nnc.compile(lambda x: x @ x)

    def frames() -> list[str]:
        with pytest.raises(ShapeError) as caught:
            fun(1.0)
        return [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]

    assert not any("array/matmul.py" in name for name in frames())
    with nnc.debug.trace_errors():
        assert any("array/matmul.py" in name for name in frames())
    assert not any("array/matmul.py" in name for name in frames())
