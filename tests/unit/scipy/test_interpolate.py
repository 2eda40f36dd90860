"""RegularGridInterpolator agrees with SciPy; its derivatives, with differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.interpolate

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, OutOfBoundsError, ShapeError, TraceError
from nnc.scipy.interpolate import RegularGridInterpolator
from nnc.testing import check_grads

RNG = np.random.default_rng(4)
POINTS = (np.array([0.0, 1, 3, 4.5]), np.array([5.0, 2, 1]), np.array([-1.0, 1]))
VALUES = RNG.normal(size=(4, 3, 2))
INSIDE = RNG.uniform(size=(6, 5, 3)) * np.array([4.5, 4, 2]) + np.array([0, 1, -1])
AROUND = INSIDE * 1.7 - 1


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill_value", [np.nan, 2.5, None])
def test_values_are_those_of_scipy(method: str, fill_value: Any) -> None:
    for values in (VALUES, RNG.normal(size=(4, 3, 2, 2)), VALUES * (1 + 2j)):
        ours = RegularGridInterpolator(POINTS, values, method, fill_value=fill_value)
        theirs = scipy.interpolate.RegularGridInterpolator(POINTS, values, method, False, fill_value)
        for xi in (INSIDE, AROUND, np.where(AROUND > 4, np.nan, AROUND)):
            want = theirs(xi)
            np.testing.assert_allclose(np.asarray(ours(xi)), want, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.asarray(nnc.compile(lambda f, x: f(x))(ours, AROUND)), theirs(AROUND), atol=1e-6)
    parts = tuple(np.moveaxis(INSIDE, -1, 0))
    np.testing.assert_allclose(np.asarray(ours(parts)), np.asarray(ours(INSIDE)), atol=0)
    np.testing.assert_allclose(np.asarray(ours(INSIDE, method="nearest")), theirs(INSIDE, method="nearest"), atol=1e-12)


def test_points_of_the_grid_have_its_values() -> None:
    grid = np.stack(np.meshgrid(*POINTS, indexing="ij"), axis=-1)
    for method in ("linear", "nearest"):
        np.testing.assert_array_equal(np.asarray(RegularGridInterpolator(POINTS, VALUES, method)(grid)), VALUES)


def test_single_points_and_single_axes_have_scipys_shapes() -> None:
    line = (POINTS[0],)
    for values, points, xi in (
        (VALUES, POINTS, INSIDE[0, 0]),
        (VALUES[:, 0, 0], line, np.array([0.5, 2.0])),
        (VALUES, line, np.array([0.5])),
    ):
        ours, theirs = (
            RegularGridInterpolator(points, values),
            scipy.interpolate.RegularGridInterpolator(points, values),
        )
        want = theirs(xi)
        assert ours(xi).shape == want.shape
        np.testing.assert_allclose(np.asarray(ours(xi)), want, atol=1e-13)


def test_derivatives_agree_with_differences_and_rows_are_mapped() -> None:
    def at(values: Any, xi: Any, first: Any) -> Any:
        return RegularGridInterpolator((first, *POINTS[1:]), values, fill_value=None)(xi)

    check_grads(at, (VALUES, INSIDE[0], POINTS[0]), order=1, rtol=1e-4, atol=1e-4)
    rows = nnc.vmap(lambda v: RegularGridInterpolator(POINTS, v)(INSIDE))(np.stack([VALUES, 2 * VALUES]))
    want = np.asarray(RegularGridInterpolator(POINTS, VALUES)(INSIDE))
    np.testing.assert_allclose(np.asarray(rows), np.stack([want, 2 * want]), atol=1e-13)
    nearest = RegularGridInterpolator(POINTS, VALUES, "nearest")
    np.testing.assert_array_equal(np.asarray(nnc.grad(lambda x: nearest(x).sum())(INSIDE)), np.zeros(INSIDE.shape))


def test_an_interpolator_is_a_pytree_of_arrays() -> None:
    f = RegularGridInterpolator(POINTS, VALUES)
    double = nnc.tree.map(lambda x: x, f)
    np.testing.assert_array_equal(np.asarray(double(INSIDE)), np.asarray(f(INSIDE)))
    moved = nnc.grad(lambda f: f(INSIDE).sum())(f)
    np.testing.assert_allclose(float(nnp.sum(moved.values)), INSIDE[..., 0].size, rtol=1e-12)
    assert RegularGridInterpolator((np.arange(3),), np.arange(3)).values.dtype == np.float32


def check_out(xi: Any) -> Any:
    return RegularGridInterpolator(POINTS, VALUES, bounds_error=True)(xi)


MISTAKES = {
    "method": (lambda: RegularGridInterpolator(POINTS, VALUES, "cubic"), ArgumentError, "method is 'cubic'"),
    "other method": (
        lambda: RegularGridInterpolator(POINTS, VALUES)(INSIDE, "cubic"),
        ArgumentError,
        "method is 'cubic'",
    ),
    "vectors": (lambda: RegularGridInterpolator((*POINTS, POINTS[0]), VALUES), ShapeError, "4 vectors"),
    "sizes": (lambda: RegularGridInterpolator(POINTS[::-1], VALUES), ShapeError, "points of axis 0"),
    "order": (lambda: RegularGridInterpolator((np.array([0, 2, 1, 3.0]),), VALUES), ArgumentError, "rise nor fall"),
    "coordinates": (lambda: RegularGridInterpolator(POINTS, VALUES)(INSIDE[..., :2]), ShapeError, "need 3 coordinates"),
    "outside": (lambda: check_out(AROUND), OutOfBoundsError, "outside of the grid"),
    "compiled": (lambda: nnc.compile(check_out)(INSIDE), TraceError, "bounds_error=False"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_worded(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text) as found:
        call()
    assert "Fix:" in str(found.value)
    np.testing.assert_allclose(
        np.asarray(check_out(INSIDE)), np.asarray(RegularGridInterpolator(POINTS, VALUES)(INSIDE))
    )
