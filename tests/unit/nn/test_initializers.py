"""Initial values: shapes, dtypes, and the variance that each promises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.errors import ArgumentError
from nnc.nn import initializers

KEY = nnc.random.key(3)
SHAPE = (400, 100)
VARIANCES = {
    "glorot_normal": 2 / 500,
    "glorot_uniform": 2 / 500,
    "he_normal": 2 / 400,
    "he_uniform": 2 / 400,
    "lecun_normal": 1 / 400,
    "lecun_uniform": 1 / 400,
}


@pytest.mark.parametrize("name", VARIANCES)
def test_scaled_initializers_have_the_variance_they_promise(name: str) -> None:
    x = np.asarray(getattr(initializers, name)()(KEY, SHAPE))
    assert x.dtype == np.float32
    bound = math.sqrt(VARIANCES[name])
    assert abs(x.mean()) < 0.02 * bound
    np.testing.assert_allclose(x.std(), bound, rtol=0.02)
    limit = math.sqrt(3) * bound if name.endswith("uniform") else 2 * bound / initializers.TRUNCATED_STDDEV
    assert np.abs(x).max() <= limit * (1 + 1e-6)


def test_axes_name_inputs_and_outputs() -> None:
    assert initializers.fans((8, 4, 3, 3), in_axis=1, out_axis=0) == (36, 72)
    assert initializers.fans((5, 8, 4), batch_axis=0) == (8, 4)
    conv = np.asarray(initializers.he_normal(in_axis=1, out_axis=0)(KEY, (64, 32, 3, 3)))
    np.testing.assert_allclose(conv.std(), math.sqrt(2 / (32 * 9)), rtol=0.02)


def test_simple_initializers() -> None:
    np.testing.assert_array_equal(np.asarray(initializers.zeros(KEY, (2, 3))), np.zeros((2, 3)))
    np.testing.assert_array_equal(np.asarray(initializers.ones(KEY, (2,), "float16")), np.ones(2))
    np.testing.assert_array_equal(np.asarray(initializers.constant(2.5)(KEY, (2,))), [2.5, 2.5])
    np.testing.assert_allclose(np.asarray(initializers.normal(3.0)(KEY, SHAPE)).std(), 3, rtol=0.02)
    drawn = np.asarray(initializers.uniform(2.0)(KEY, SHAPE))
    assert 0 <= drawn.min() < 0.01 and 1.99 < drawn.max() < 2
    cut = np.asarray(initializers.truncated_normal(0.5, lower=-1.0, upper=3.0)(KEY, SHAPE))
    assert cut.min() >= -0.5 and 0.5 < cut.max() <= 1.5


def test_a_dtype_is_given_when_made_or_when_drawn() -> None:
    assert initializers.he_normal(dtype="float64")(KEY, SHAPE).dtype == np.float64
    assert initializers.he_normal()(KEY, SHAPE, "float16").dtype == np.float16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: initializers.he_normal()(KEY, (3,)), r"shape \(3,\) has no input and output axes"),
        (lambda: initializers.variance_scaling(1.0, "fan", "normal")(KEY, (3, 3)), "mode='fan'"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_named(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize(("shape", "axis"), [((6, 4), -1), ((4, 6), -1), ((6, 4), 0), ((2, 3, 5), 1), ((3, 3), -1)])
def test_orthogonal_columns_or_rows_have_the_length_asked_for(shape: tuple[int, ...], axis: int) -> None:
    w = np.asarray(initializers.orthogonal(2.0, axis)(nnc.random.key(0), shape, np.float64))
    assert w.shape == shape
    matrix = np.moveaxis(w, axis, -1).reshape(-1, shape[axis])
    product = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)
    assert initializers.orthogonal()(nnc.random.key(0), shape, np.float16).dtype == np.float16


def test_orthogonal_needs_two_axes() -> None:
    with pytest.raises(ArgumentError, match=r"shape \(3,\) has fewer than two axes"):
        initializers.orthogonal()(nnc.random.key(0), (3,))


def test_orthogonal_matrices_of_either_sign_are_drawn() -> None:
    draws = [float(initializers.orthogonal()(nnc.random.key(seed), (1, 1), np.float64)[0, 0]) for seed in range(40)]
    assert set(np.round(draws, 12)) == {-1.0, 1.0} and 8 < sum(x > 0 for x in draws) < 32
