"""Draws of real numbers; the literal numbers come from jax.random (0.10.2) for the same key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import nnc
from nnc import random
from nnc.errors import ArgumentError, DTypeError, ShapeError

KEY = random.key(42)


def draw(name: str, *args: Any, **kwargs: Any) -> Any:
    return np.asarray(getattr(random, name)(KEY, *args, **kwargs)).astype(np.float64)


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("float16", [0.076171875, 0.1904296875, 0.9755859375]),
        ("bfloat16", [0.6328125, 0.84375, 0.96875]),
        ("float32", [0.48870956897735596, 0.6797971725463867, 0.6162714958190918]),
        ("float64", [0.4267275666499091, 0.015010069515314584, 0.5741444178995352]),
    ],
)
def test_uniform_numbers_are_exactly_those_of_jax(dtype: str, numbers: list[float]) -> None:
    assert random.uniform(KEY, (3,), dtype).dtype.name == dtype
    assert draw("uniform", (3,), dtype).tolist() == numbers


@pytest.mark.parametrize(
    ("name", "args", "numbers"),
    [
        ("normal", ((3,),), [-0.02830461598932743, 0.4671318531036377, 0.2957029640674591]),
        ("normal", ((3,), "float64"), [-0.18471174528191162, -2.169824560397754, 0.18693555179382582]),
        ("exponential", ((3,),), [0.670817494392395, 1.1388006210327148, 0.9578199982643127]),
        ("gumbel", ((3,),), [0.3340933918952942, 0.952019453048706, 0.7255305647850037]),
        ("laplace", ((3,),), [0.022839652374386787, -0.4456535577774048, -0.2646729052066803]),
        ("truncated_normal", (-1, 2, (3,)), [0.14770005643367767, 0.5684449076652527, 0.42102551460266113]),
    ],
)
def test_draws_are_those_of_jax_up_to_rounding(name: str, args: tuple[Any, ...], numbers: list[float]) -> None:
    np.testing.assert_allclose(draw(name, *args), numbers, rtol=1e-12 if "float64" in args else 2e-6)


@pytest.mark.parametrize(
    ("name", "args", "cdf"),
    [
        ("uniform", (), stats.uniform.cdf),
        ("normal", (), stats.norm.cdf),
        ("exponential", (), stats.expon.cdf),
        ("gumbel", (), stats.gumbel_r.cdf),
        ("laplace", (), stats.laplace.cdf),
        ("truncated_normal", (-0.5, 2.0), stats.truncnorm(-0.5, 2.0).cdf),
        ("gamma", (0.3,), stats.gamma(0.3).cdf),
        ("gamma", (1.0,), stats.gamma(1.0).cdf),
        ("gamma", (7.5,), stats.gamma(7.5).cdf),
    ],
)
def test_draws_follow_their_distribution(name: str, args: tuple[Any, ...], cdf: Any) -> None:
    sample = draw(name, *args, shape=(4000,), dtype="float64")
    assert stats.kstest(sample, cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", ["uniform", "normal", "exponential", "gumbel", "laplace"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_draws_have_the_dtype_asked_for_and_are_finite(name: str, dtype: str) -> None:
    x = getattr(random, name)(KEY, (5, 200), dtype)
    assert (x.shape, x.dtype.name) == ((5, 200), dtype)
    assert np.isfinite(np.asarray(x).astype(np.float64)).all()


def test_bounds_broadcast_and_hold() -> None:
    low, high = np.asarray([[-1.0], [5.0]], np.float32), np.asarray([6.0, 7.0, 8.0], np.float32)
    x = draw("uniform", (100, 2, 3), minval=low, maxval=high)
    assert (x >= low).all() and (x < high).all()
    y = draw("truncated_normal", low, high, (100, 2, 3))
    assert (y > low).all() and (y < high).all()
    assert random.truncated_normal(KEY, low, high).shape == (2, 3)
    assert random.gamma(KEY, high).shape == (3,)
    with pytest.raises(ArgumentError, match=r"minval is 2\.0 and maxval is 1\.0"):
        random.uniform(KEY, (2,), minval=2.0, maxval=1.0)
    with pytest.raises(ArgumentError, match=r"lower is 2\.0 and upper is 1\.0"):
        random.truncated_normal(KEY, 2.0, 1.0, (2,))
    assert random.uniform(KEY, (), minval=2.0, maxval=2.0) == 2
    with pytest.raises(ShapeError, match="do not broadcast"):
        random.uniform(KEY, (2,), minval=np.zeros(3, np.float32))
    with pytest.raises(ShapeError, match="do not broadcast"):
        random.gamma(KEY, high, (3, 2))


def test_draws_move_with_their_bounds() -> None:
    slope = nnc.grad(lambda high: random.uniform(KEY, (), "float64", 0.0, high))(nnc.asarray(2.0, dtype="float64"))
    np.testing.assert_allclose(float(slope), draw("uniform", (), "float64"))


def test_integer_dtypes_are_refused() -> None:
    for name, args in (
        ("uniform", ()),
        ("normal", ()),
        ("gumbel", ()),
        ("truncated_normal", (0, 1)),
        ("gamma", (1.0,)),
    ):
        with pytest.raises(DTypeError, match="dtype is int32"):
            getattr(random, name)(KEY, *args, shape=(2,), dtype="int32")
