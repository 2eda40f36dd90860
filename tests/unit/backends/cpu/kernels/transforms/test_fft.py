from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import command, reference
from tests.unit.backends.cpu.against_reference import LAYOUTS, Layout, dense, run

REALS = ("float32", "float64")
# one pass, several, an odd prime, two primes, a chirp, a chirp of odd and of even number, two rounds, two rounds of odd ones
SIZES = (1, 2, 3, 4, 7, 8, 12, 16, 22, 49, 17, 74, 128, 510, 514, 1024, 1323)


def draw(shape: tuple[int, ...], kind: str, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if kind.startswith("c") else x).astype(kind)


def check(name: str, x: np.ndarray[Any, Any], params: dict[str, Any], layout: Layout = dense) -> None:
    """The kernel is as exact as its dtype allows, beside a transform in float64 or, of float64, in NumPy's."""
    (found,) = run(name, [layout(x)], params, layout)
    wide = x.astype("complex128" if x.dtype.kind == "c" else "float64")
    wanted = reference[command(name)](wide, **params)
    assert found.dtype.itemsize == wanted.dtype.itemsize * x.dtype.itemsize // wide.dtype.itemsize
    scale = np.sqrt(np.mean(np.abs(wanted) ** 2)) if wanted.size else 0.0
    np.testing.assert_allclose(found, wanted, rtol=0, atol=12 * float(np.finfo(x.dtype).eps) * scale)


def check_all(real: str, shape: tuple[int, ...], axis: int, layout: Layout = dense) -> None:
    kind, n = {"float32": "complex64", "float64": "complex128"}[real], shape[axis]
    for inverse in (False, True):
        check("fft", draw(shape, kind), {"axes": (axis,), "inverse": inverse}, layout)
    check("rfft", draw(shape, real), {"axis": axis}, layout)
    bins = list(shape)
    bins[axis] = n // 2 + 1
    check("irfft", draw(tuple(bins), kind), {"axis": axis, "points": n}, layout)


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("n", SIZES)
def test_transforms_of_all_numbers_of_points(real: str, n: int) -> None:
    check_all(real, (3, n), 1)
    check_all(real, (n, 19), 0)


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_operands_and_results_may_lie_anyhow(real: str, layout: Layout) -> None:
    for shape, axis in (((17, 6), 1), ((6, 17), 0), ((2, 18, 5), 1), ((2, 2, 600), 2), ((1, 1), 0)):
        check_all(real, shape, axis, layout)


@pytest.mark.parametrize("n", [2, 5, 16, 34, 1024])
def test_operands_may_be_broadcasts(n: int) -> None:
    for shape, source in (((n, 3), (1, 3)), ((3, n), (1, n)), ((3, n), (3, 1)), ((3, n), (1, 1))):
        for axis in (0, 1):
            x = np.broadcast_to(draw(source, "float32"), shape)
            check("rfft", x, {"axis": axis}, lambda x: x)
            check("fft", np.broadcast_to(draw(source, "complex64"), shape), {"axes": (axis,)}, lambda x: x)


@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (0, 1, 2), (2, 0), (-1, -3)])
def test_several_axes_are_transformed_one_after_the_other(axes: tuple[int, ...]) -> None:
    for shape in ((5, 18, 6), (4, 3, 640)):
        check("fft", draw(shape, "complex64"), {"axes": axes})


@pytest.mark.parametrize("shape", [(4099, 32), (3, 4099, 8), (2, 32768), (64, 33, 40)])
def test_threads_share_rows_groups_and_rounds(shape: tuple[int, ...]) -> None:
    check_all("float32", shape, len(shape) - 1)


def test_nothing_to_transform() -> None:
    check_all("float32", (0, 8), 1)
    check_all("float32", (0, 1024), 1)


@pytest.mark.parametrize("n", [30, 34, 1024])
def test_a_row_is_not_touched_by_another_ones_infinities(n: int) -> None:
    x = draw((20, n), "float32")
    plain = run("rfft", [x], {"axis": 1})[0]
    x[7, 3], x[19, 0] = np.inf, np.nan
    found = run("rfft", [x], {"axis": 1})[0]
    others = [i for i in range(20) if i not in (7, 19)]
    np.testing.assert_array_equal(found[others], plain[others])
    assert not np.isfinite(found[[7, 19]]).any()


def test_imaginary_parts_of_bins_that_are_real_are_not_read() -> None:
    for n in (7, 8, 1024):
        x = draw((3, n // 2 + 1), "complex64")
        plain = run("irfft", [x], {"axis": 1, "points": n})[0]
        x.imag[:, 0] = np.nan
        if n % 2 == 0:
            x.imag[:, -1] = np.nan
        np.testing.assert_array_equal(run("irfft", [x], {"axis": 1, "points": n})[0], plain)


def test_too_many_points_far_apart_are_left_to_the_reference() -> None:
    x = draw((1 << 14, 2), "complex64")
    found = nnc.compile(lambda x: nnp.fft.fft(x, axis=0))(x)
    np.testing.assert_allclose(found, np.fft.fft(x, axis=0), rtol=0, atol=1e-3)


def test_a_loop_of_transforms_runs_without_python() -> None:
    def smooth(x: Any) -> Any:
        return nnc.fori_loop(0, 5, lambda i, x: nnp.fft.irfft2(nnp.fft.rfft2(x)), x)

    x = draw((16, 12), "float32")
    compiled = nnc.compile(smooth)
    np.testing.assert_allclose(compiled(x), x, atol=1e-5)
    text = compiled.lower(x).compile().as_text()
    assert "[numpy]" not in text and "rfft" in text
