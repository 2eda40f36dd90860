"""matplotlib and pandas take nnc's arrays, and pandas' tables are operands of nnc's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

X = nnp.linspace(0.0, 1.0, 12)
IMAGE = nnp.reshape(X, (3, 4))


def axes() -> Any:
    pytest.importorskip("matplotlib", reason="draws the plots")
    from matplotlib.figure import Figure  # noqa: PLC0415  (optional; a figure without a window)

    return Figure().subplots()


def pandas() -> Any:
    return pytest.importorskip("pandas", reason="makes the tables")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_plots_hold_the_values_of_arrays(dtype: str) -> None:
    ax, x = axes(), X.astype(dtype)
    want = np.asarray(x, np.float64)
    (line,) = ax.plot(x, x * 2)
    np.testing.assert_array_equal(line.get_xdata().astype(np.float64), want)
    np.testing.assert_array_equal(ax.imshow(x.reshape(3, 4)).get_array().astype(np.float64), want.reshape(3, 4))
    np.testing.assert_array_equal(ax.hist(x, bins=4)[0], np.histogram(want, bins=4)[0])
    np.testing.assert_array_equal(ax.scatter(x, x, c=x, s=X * 9).get_offsets()[:, 0], want)
    ax.figure.canvas.draw()


DRAWN: dict[str, Callable[[Any], Any]] = {
    "bar": lambda ax: ax.bar(X, X),
    "boxplot": lambda ax: ax.boxplot([X, X]),
    "contourf": lambda ax: ax.contourf(IMAGE),
    "errorbar": lambda ax: ax.errorbar(X, X, yerr=X),
    "fill_between": lambda ax: ax.fill_between(X, X, X + 1),
    "hist of several": lambda ax: ax.hist([X, X]),
    "pcolormesh": lambda ax: ax.pcolormesh(IMAGE),
    "quiver": lambda ax: ax.quiver(IMAGE, IMAGE),
    "numbers as places": lambda ax: (ax.axvline(X[3]), ax.text(X[0], X[1], "a"), ax.set_xlim(X[0], X[-1])),
    "a list of losses": lambda ax: ax.plot([X[i] for i in range(3)]),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_each_kind_of_plot_takes_arrays(kind: str) -> None:
    assert DRAWN[kind](axes()) is not None


def test_tables_and_series_are_made_of_arrays_and_keep_dtypes() -> None:
    pd = pandas()
    frame = pd.DataFrame({"a": X, "n": nnp.arange(12), "b": X > 0.5})
    assert [str(dtype) for dtype in frame.dtypes] == ["float32", "int64", "bool"]
    np.testing.assert_array_equal(frame["a"], X)
    assert pd.DataFrame(IMAGE, columns=list("wxyz")).shape == (3, 4) and pd.Series(X).dtype == np.float32
    assert frame.assign(c=X * 2)["c"].iloc[-1] == 2
    np.testing.assert_array_equal(frame.iloc[nnp.asarray([1, 3])].index, [1, 3])
    records = pd.DataFrame([{"step": i, "loss": float(X[i])} for i in range(3)])
    assert records["loss"].dtype == np.float64


def test_ufuncs_operators_and_functions_meet_tables_and_series() -> None:
    pd = pandas()
    series = pd.Series(np.asarray(X), name="x")
    assert (
        isinstance(nnp.sin(series), nnc.Array)
        and isinstance(series + X, nnc.Array)
        and isinstance(X + series, nnc.Array)
    )
    np.testing.assert_array_equal(series + X, 2 * np.asarray(X))
    np.testing.assert_allclose(np.sin(X), np.sin(np.asarray(X)), rtol=1e-6)
    np.testing.assert_array_equal(series[np.asarray(X > 0.5)], series[series > 0.5])
    gradient = nnc.grad(lambda table: nnp.sum(nnp.asarray(table) ** 2))(pd.DataFrame(np.asarray(IMAGE)))
    np.testing.assert_allclose(gradient, 2 * np.asarray(IMAGE))
