"""Numbers near the ends of the range, far from 0 beside their deviations, and in the tails."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import nnc
import nnc.numpy as nnp
import nnc.scipy.linalg as sl
from nnc import nn, optim
from nnc.scipy.sparse import linalg as sparse

WAYS = {"eager": lambda f: f, "compiled": nnc.compile, "mapped": lambda f: lambda x: nnc.vmap(f)(x[None])[0]}
EPS = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-14}


def numbers(x: Any) -> Any:
    return np.asarray(x).astype(np.float64)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("float32", 1e20), ("float32", 5e37), ("float32", 1e-30), ("float64", 1e200), ("float64", 1e-200), ("float16", 1e4),
     ("float16", 1e-4), ("bfloat16", 1e30), ("bfloat16", 1e-30)],
)  # fmt: skip
def test_norms_are_right_where_powers_leave_the_range(way: str, dtype: str, scale: float) -> None:
    x = nnp.asarray(np.array([3.0, -4.0]) * scale, dtype)
    for order in (2, 3, 1.5, -1):
        size = numbers(x) / scale
        want = (abs(size) ** order).sum() ** (1 / order)
        norm = WAYS[way](lambda x, order=order: nnp.linalg.norm(x, order))
        np.testing.assert_allclose(numbers(norm(x)) / scale, want, rtol=4 * EPS[dtype])
        slope = np.sign(size) * (abs(size) / want) ** (order - 1)
        np.testing.assert_allclose(numbers(nnc.grad(norm)(x)), slope, rtol=20 * EPS[dtype])


def test_complex_and_matrix_norms_are_scaled_too() -> None:
    assert float(nnp.linalg.norm(nnp.asarray([3e20, 4e20j]))) == np.float32(5e20)
    x = nnp.asarray([[3e20, 0.0], [4e20, 0.0]])
    np.testing.assert_allclose(numbers(nnp.linalg.norm(x)), 5e20, rtol=1e-6)
    np.testing.assert_allclose(numbers(nnp.linalg.norm(x, axis=0, keepdims=True)), [[5e20, 0]], rtol=1e-6)
    np.testing.assert_allclose(numbers(nnc.hessian(lambda v: nnp.linalg.norm(v) ** 2)(nnp.zeros(2))), 2 * np.eye(2))


@pytest.mark.parametrize("scale", [1e20, 1e-25])
def test_cosines_do_not_depend_on_the_scale(scale: float) -> None:
    x, y = nnp.asarray([3 * scale, scale]), nnp.asarray([scale, 2 * scale])
    similarity = nn.cosine_similarity(x, y, eps=1e-37)
    np.testing.assert_allclose(float(similarity), 0.5**0.5, rtol=1e-6)


def test_gradients_are_clipped_also_where_no_float_holds_their_norm() -> None:
    for clip, want in (
        (optim.clip_by_global_norm(1.0), [3, 3, 1] / np.sqrt(19)),
        (optim.clip_by_norm(1.0), [3, 3, 1] / np.sqrt(19)),
        (optim.clip_by_block_rms(1.0), [3, 3, 1] / np.sqrt(19 / 3)),
    ):
        x = nnp.asarray([3e38, 3e38, 1e38])
        np.testing.assert_allclose(numbers(clip.update(x, clip.init(x))[0]), want, rtol=1e-6)
    assert float(optim.global_norm([nnp.asarray([3e20]), nnp.asarray([4e20])])) == np.float32(5e20)
    np.testing.assert_allclose(float(optim.tree_utils.tree_norm([nnp.asarray([3e-30, 4e-30])])), 5e-30, rtol=1e-6)


LAYERS: dict[str, Any] = {
    "layer_norm": (lambda x, eps: nn.layer_norm(x, eps=eps), (1,)),
    "group_norm": (lambda x, eps: nn.group_norm(x[:, :, None], 1, eps=eps)[:, :, 0], (1,)),
    "instance_norm": (lambda x, eps: nn.instance_norm(x[:, None], eps=eps)[:, 0], (1,)),
    "batch_norm": (lambda x, eps: nn.batch_norm(x, nnp.zeros(8), nnp.ones(8), eps=eps)[0], (0,)),
}


@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_normalise_numbers_of_all_sizes(name: str, way: str) -> None:
    function, axes = LAYERS[name]
    size = np.random.default_rng(0).uniform(-1, 1, (6, 8))
    centred = size - size.mean(axes, keepdims=True)
    want = centred / centred.std(axes, keepdims=True)
    weights = np.random.default_rng(1).normal(size=size.shape)
    call = WAYS[way](lambda x, w: (function(x, 0.0) * w).sum())
    for dtype, scale in (
        ("float32", 3e38),
        ("float32", 1e20),
        ("float32", 1e-30),
        ("float64", 1e200),
        ("float64", 1e-200),
    ):
        x = nnp.asarray(size * scale, dtype)
        np.testing.assert_allclose(numbers(function(x, 0.0)), want, rtol=1e-4, atol=1e-6)
        slope = numbers(nnc.grad(call)(x, nnp.asarray(weights, dtype))) * scale
        usual = numbers(nnc.grad(call)(nnp.asarray(size, "float64"), nnp.asarray(weights, "float64")))
        if scale != 3e38:  # where slopes are denormal numbers
            np.testing.assert_allclose(slope, usual, rtol=1e-3, atol=1e-5)


def test_rms_norm_is_scaled_and_eps_keeps_its_meaning() -> None:
    np.testing.assert_allclose(
        numbers(nn.rms_norm(nnp.asarray([3e20, 4e20]))), [3 / 12.5**0.5, 4 / 12.5**0.5], rtol=1e-6
    )
    tiny = nnp.asarray([1e-20, -1e-20])
    np.testing.assert_allclose(numbers(nn.rms_norm(tiny)), numbers(tiny) / 1e-3, rtol=1e-5)
    np.testing.assert_allclose(numbers(nn.layer_norm(tiny)), numbers(tiny) / 1e-5**0.5, rtol=1e-5)


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_a_mean_of_a_million_costs_no_digits_of_deviations(way: str) -> None:
    x = (1e6 + np.random.default_rng(0).normal(size=(2, 500))).astype(np.float32)
    exact = x.astype(np.float64)
    want = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(numbers(WAYS[way](nn.layer_norm)(x)), want, atol=1e-5)
    np.testing.assert_allclose(numbers(WAYS[way](nnp.var)(x)), exact.var(), rtol=1e-5)
    images = (1e6 + np.random.default_rng(1).normal(size=(8, 3, 40, 40))).astype(np.float32)
    exact = images.astype(np.float64)
    batch = WAYS[way](lambda x: nn.batch_norm(x, nnp.zeros(3), nnp.ones(3), momentum=0.0))
    out, (mean, variance) = batch(images)
    want = (exact - exact.mean((0, 2, 3), keepdims=True)) / np.sqrt(exact.var((0, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(numbers(out), want, atol=1e-5)
    np.testing.assert_allclose(numbers(mean), exact.mean((0, 2, 3)), rtol=1e-7)
    np.testing.assert_allclose(numbers(variance), exact.var((0, 2, 3), ddof=1), rtol=1e-5)


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_means_and_deviations_stay_in_range(way: str) -> None:
    mean, std = WAYS[way](nnp.mean), WAYS[way](nnp.std)
    for x, want in (
        (nnp.asarray([3e38, 3e38]), 3e38), (nnp.asarray([1.7e308] * 2, "float64"), 1.7e308),
        (nnp.asarray([5e-324] * 2, "float64"), 5e-324), (nnp.asarray([3e38] * 2, "bfloat16"), 3e38),
    ):  # fmt: skip
        np.testing.assert_allclose(numbers(mean(x)), want, rtol=4e-3 if x.dtype.name == "bfloat16" else 1e-7)
        assert numbers(nnc.grad(mean)(x)).tolist() == [0.5, 0.5]
    for x, want in (
        (nnp.asarray([3e38, -3e38]), 3e38), (nnp.asarray([3e-30, 4e-30]), 5e-31), (nnp.asarray([400.0, -400.0], "float16"), 400),
        (nnp.asarray([3e-200, 4e-200], "float64"), 5e-201), (nnp.asarray([3e20, 4e20]), 5e19),
    ):  # fmt: skip
        np.testing.assert_allclose(numbers(std(x)), want, rtol=1e-3 if x.dtype.name == "float16" else 1e-6)
        np.testing.assert_allclose(abs(numbers(nnc.grad(std)(x))), [0.5, 0.5], rtol=1e-3)
    np.testing.assert_allclose(numbers(nnp.average(nnp.asarray([3e38, 3e38]), weights=[1.0, 3.0])), 3e38, rtol=1e-6)
    np.testing.assert_allclose(float(nnp.nanstd(nnp.asarray([3e20, np.nan, 5e20]))), 1e20, rtol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_logsumexp_keeps_the_digits_of_small_terms(way: str) -> None:
    call = WAYS[way](nnp.logsumexp)
    np.testing.assert_allclose(float(call(nnp.asarray([-15.5, -8.12588e-12]))), 1.8553e-7, rtol=1e-4)
    assert float(call(nnp.ones(70000, "float16"))) == pytest.approx(12.16, abs=0.01)
    np.testing.assert_allclose(float(call(nnp.asarray([2.0, 2.0, 2.0]))), 2 + np.log(3), rtol=1e-6)
    assert float(call(nnp.asarray([-np.inf, -np.inf]))) == -np.inf
    assert numbers(nnc.grad(call)(nnp.asarray([np.inf, 0.0]))).tolist() == [1, 0]
    np.testing.assert_allclose(float(WAYS[way](nn.log_softmax)(nnp.asarray([20.0, 0.0]))[0]), -2.061e-9, rtol=1e-3)


def test_grids_reach_to_the_ends_of_the_range() -> None:
    assert np.asarray(nnp.linspace(-1.7e308, 1.7e308, 3, dtype="float64")).tolist() == [-1.7e308, 0, 1.7e308]
    traced = nnc.compile(lambda a: nnp.linspace(-a, a, 3))(np.float32(3e38))
    assert numbers(traced).tolist() == numbers(np.array([-3e38, 0, 3e38], np.float32)).tolist()
    np.testing.assert_allclose(
        np.asarray(nnp.geomspace(1e-300, 1e300, 3, dtype="float64")), [1e-300, 1, 1e300], rtol=1e-12
    )
    x = nnp.interp(np.array([0.0, 1.0, 0.5, 2.0]), np.array([0.0, 1, 2]), np.array([5.0, np.inf, 7]))
    assert np.asarray(x).tolist() == [5, np.inf, np.inf, 7]


@pytest.mark.parametrize("solver", [sparse.cg, sparse.gmres, sparse.bicgstab])
@pytest.mark.parametrize(("of_map", "of_vector"), [(1.0, 1e20), (1.0, 1e-25), (1e20, 1.0), (1e-25, 1.0)])
def test_solvers_solve_systems_of_all_scales(solver: Any, of_map: float, of_vector: float) -> None:
    a = nnp.asarray(np.array([[4.0, 1.0], [1.0, 3.0]]) * of_map, "float32")
    x, info = solver(a, nnp.asarray(np.array([6.0, 7.0]) * of_vector, "float32"))
    np.testing.assert_allclose(numbers(x) * (of_map / of_vector), [1, 2], rtol=1e-5)
    assert int(info) == 0


@pytest.mark.parametrize("solver", [sparse.cg, sparse.gmres, sparse.bicgstab])
def test_solvers_say_that_they_did_not_solve(solver: Any) -> None:
    a = nnp.asarray([[4.0, 1.0], [1.0, 3.0]])
    assert int(solver(a, nnp.asarray([np.inf, 1.0]))[1]) != 0
    assert int(solver(a, nnp.asarray([np.nan, 1.0]))[1]) != 0


def test_infinite_logits_of_the_right_sign_cost_nothing() -> None:
    x, y = nnp.asarray([np.inf, -np.inf]), nnp.asarray([1.0, 0.0])
    assert numbers(nn.sigmoid_cross_entropy(x, y)).tolist() == [0, 0]
    assert numbers(nnc.grad(lambda x: nn.sigmoid_cross_entropy(x, y).sum())(x)).tolist() == [0, 0]


def test_log1p_of_small_complex_numbers_keeps_the_real_part() -> None:
    x = nnp.log1p(nnp.asarray(1e-20 + 1e-20j))
    np.testing.assert_allclose([float(x.real), float(x.imag)], 1e-20, rtol=1e-6)
    z = np.array([-1 + 1e-5j, 2 - 3j])
    np.testing.assert_allclose(np.asarray(nnp.log1p(z)).real, [-11.512925464970229, 0.5 * np.log(18)], rtol=1e-14)


@pytest.mark.parametrize("function", [sl.logm, nnc.compile(sl.logm)], ids=["eager", "compiled"])
def test_logarithms_of_matrices_far_from_normal_are_exact(function: Any) -> None:
    np.testing.assert_array_equal(function(np.asarray([[1.0, 1e8], [0.0, 1.0]])), [[0, 1e8], [0, 0]])
    x = np.diag([1.0, 2.0, 3.0, 1.5]) + np.triu(np.random.default_rng(0).normal(size=(4, 4)) * 1e4, 1)
    with warnings.catch_warnings(action="ignore"):  # SciPy's own check by the exponential loses the digits
        want = scipy.linalg.logm(x)
    np.testing.assert_allclose(function(x), want, rtol=0, atol=1e-12 * np.abs(want).max())


def test_correlations_do_not_depend_on_the_scale() -> None:
    x = np.random.default_rng(0).normal(size=(3, 50))
    for scale in (1.0, 1e25, 1e-25, 2e37):
        for way in (nnp.corrcoef, nnc.compile(nnp.corrcoef)):
            np.testing.assert_allclose(way((x * scale).astype(np.float32)), np.corrcoef(x), atol=1e-5)
    mixed = x * np.array([[1e25], [1.0], [1e-25]])
    np.testing.assert_allclose(nnp.corrcoef(mixed.astype(np.float32)), np.corrcoef(x), atol=1e-5)
    np.testing.assert_allclose(nnp.corrcoef(x[:2] * 1e200, x[2] * 1e-200), np.corrcoef(x), atol=1e-12)


def test_lines_between_numbers_whose_distance_overflows() -> None:
    most = 1.7e308
    places = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(
        nnp.interp(places, np.array([0.0, 1.0]), np.array([-most, most])), [-most, -most / 2, 0, most / 2, most]
    )
    np.testing.assert_allclose(
        nnp.interp((2 * places - 1) * most, np.array([-most, most]), np.array([1.0, 5.0])), 1 + 4 * places
    )
    slope = nnc.grad(lambda y: nnp.sum(nnp.interp(places, np.array([0.0, 1.0]), y)))
    np.testing.assert_allclose(slope(nnp.asarray([-most, most], "float64")), [2.5, 2.5])


@pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
def test_complex_squares_reciprocals_and_logarithms_at_the_ends_of_the_range(run: Any) -> None:
    for dtype, big in (("complex64", 1e30), ("complex128", 1e200)):
        z = np.array([big + 1j * big, big - 1j * big, complex(np.inf, 1)], dtype)
        square = np.asarray(run(nnp.square)(z))
        np.testing.assert_array_equal(square.real, [0, 0, np.inf])
        np.testing.assert_array_equal(square.imag, [np.inf, -np.inf, np.inf])
        near = np.array([complex(1.25, 1.25 * (1 - 2**-20)), 3 - 4j], dtype)
        wanted = [1.25**2 * (1 - (1 - 2**-20) ** 2), -7]
        np.testing.assert_allclose(np.asarray(run(nnp.square)(near)).real, wanted, rtol=1e-6)
        turned = np.array([complex(x, y) for x in (3.0, -3.0, 0.5) for y in (0.0, -0.0, 2.0)], dtype)
        inverse = np.asarray(run(nnp.reciprocal)(turned))
        np.testing.assert_array_equal(np.signbit(inverse.imag), ~np.signbit(turned.imag))
        np.testing.assert_allclose(inverse, np.reciprocal(turned), rtol=1e-6)
    tiny = np.array([complex(5e-324, 5e-324), complex(1e-310, 3e-310), complex(0, 1e-320), complex(3e-305, 4e-305)])
    np.testing.assert_allclose(np.asarray(run(nnp.log)(tiny)), np.log(tiny), rtol=1e-15)
