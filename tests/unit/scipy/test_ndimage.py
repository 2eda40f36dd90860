"""map_coordinates agrees with SciPy in all of its modes; its derivatives, with differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.ndimage

import nnc
import nnc.scipy.ndimage as ndimage
from nnc.errors import ArgumentError, ShapeError, UnsupportedError
from nnc.testing import check_grads

RNG = np.random.default_rng(2)
IMAGE = RNG.normal(size=(5, 7))
INSIDE = RNG.uniform(0, 1, size=(2, 40)) * np.array([[4], [6]])
AROUND = RNG.uniform(-2, 3, size=(2, 200)) * np.array([[5], [7]])
WHOLE = np.stack([RNG.integers(-12, 20, size=60), RNG.integers(-12, 20, size=60)]).astype(float)
MODES = ("constant", "grid-constant", "nearest", "mirror", "reflect", "grid-mirror", "grid-wrap", "wrap")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [0, 1])
def test_elements_are_those_of_scipy(order: int, mode: str) -> None:
    for places in (INSIDE, AROUND, WHOLE):
        want = scipy.ndimage.map_coordinates(IMAGE, places, order=order, mode=mode, cval=2.5)
        got = ndimage.map_coordinates(IMAGE, places, order, mode, 2.5)
        np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=1e-13)
        narrow = ndimage.map_coordinates(IMAGE.astype(np.float32), places, order, mode, 2.5)
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(np.asarray(narrow), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_ties_between_two_elements_are_those_of_scipy(n: int, mode: str) -> None:
    """Coordinates outside are moved into the array before they are rounded: a mirrored half is rounded up, too."""
    x, places = np.arange(float(n)), np.arange(-4 * n, 4 * n + 0.25, 0.25)[None]
    want = scipy.ndimage.map_coordinates(x, places, order=0, mode=mode, cval=-1.0)
    for run in (ndimage.map_coordinates, nnc.compile(ndimage.map_coordinates, static_argnums=(2, 3))):
        np.testing.assert_array_equal(np.asarray(run(x, places, 0, mode, -1.0)), want)


@pytest.mark.parametrize("mode", ["constant", "mirror", "wrap"])
def test_compiled_and_mapped_elements_are_those_at_once(mode: str) -> None:
    want = np.asarray(ndimage.map_coordinates(IMAGE, AROUND, 1, mode))
    compiled = nnc.compile(lambda x, places: ndimage.map_coordinates(x, places, 1, mode))
    np.testing.assert_allclose(np.asarray(compiled(IMAGE, AROUND)), want, rtol=0, atol=1e-14)
    rows = nnc.vmap(lambda x: ndimage.map_coordinates(x, AROUND, 1, mode))(np.stack([IMAGE, 2 * IMAGE]))
    np.testing.assert_allclose(np.asarray(rows), np.stack([want, 2 * want]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("mode", MODES)
def test_derivatives_agree_with_differences(mode: str) -> None:
    places = AROUND[:, :12]
    check_grads(lambda x, at: ndimage.map_coordinates(x, at, 1, mode), (IMAGE, places), order=1, rtol=1e-4, atol=1e-4)
    nearest = nnc.grad(lambda at: ndimage.map_coordinates(IMAGE, at, 0, mode).sum())(places)
    np.testing.assert_array_equal(np.asarray(nearest), np.zeros(places.shape))


def test_other_dtypes_and_shapes() -> None:
    integers = np.arange(6).reshape(2, 3)
    got = ndimage.map_coordinates(integers, [[0.5, 1.0], [0.5, 1.7]], 1)
    np.testing.assert_array_equal(
        np.asarray(got), scipy.ndimage.map_coordinates(integers, [[0.5, 1.0], [0.5, 1.7]], order=1)
    )
    assert got.dtype == integers.dtype
    grid = ndimage.map_coordinates(IMAGE, (np.arange(3.0)[:, None], np.arange(4.0)), 1)
    np.testing.assert_allclose(np.asarray(grid), IMAGE[:3, :4], rtol=1e-15)
    z = ndimage.map_coordinates(IMAGE + 1j * IMAGE, INSIDE, 1)
    np.testing.assert_allclose(
        np.asarray(z), scipy.ndimage.map_coordinates(IMAGE, INSIDE, order=1) * (1 + 1j), atol=1e-13
    )
    assert np.isnan(np.asarray(ndimage.map_coordinates(IMAGE, [[np.nan], [1.0]], 1, "nearest"))).all()
    one = ndimage.map_coordinates(np.array([3.0]), [[-1.0, 0.0, 2.0]], 1, "mirror")
    np.testing.assert_array_equal(np.asarray(one), [3, 3, 3])


MISTAKES = {
    "mode": (lambda: ndimage.map_coordinates(IMAGE, AROUND, 1, "edge"), ArgumentError, "mode is 'edge'"),
    "order": (lambda: ndimage.map_coordinates(IMAGE, AROUND, 3), UnsupportedError, "order is 3"),
    "axes": (lambda: ndimage.map_coordinates(IMAGE, AROUND[:1], 1), ShapeError, "1 coordinates for 2 axes"),
    "empty": (lambda: ndimage.map_coordinates(IMAGE[:0], AROUND, 1), ShapeError, "0 elements"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_worded(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text) as found:
        call()
    assert "Fix:" in str(found.value)
