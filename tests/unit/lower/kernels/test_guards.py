"""Reductions that few rows need: skipped by the others, and right in rows of all scales, however the kernel goes through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.device.targets.__init__ import X86
from nnc.graph import TensorSpec
from nnc.lower.kernels.domain import Domain, is_reduction
from nnc.lower.kernels.llvm import print_graph
from nnc.lower.kernels.row_phases import Phases, overwrites
from nnc.lower.plan.stages import View

RNG = np.random.default_rng(7)
# along the row, across it, wide, in parts, over loops that are no single one, and few elements
LAYOUTS = [
    ((40, 1000), 1), ((1000, 40), 0),
    ((3000, 700), 0), ((400_000,), 0), ((1, 300_000), 1), ((9, 20, 33), (0, 2)), ((5, 3), 1), ((3, 37), 0),
]  # fmt: skip
SCALES = ["usual", "large", "small", "subnormal", "each its own", "far from 0", "infinite", "no number"]


def rows_of(scale: str, shape: tuple[int, ...], axis: Any) -> Any:
    x = RNG.normal(size=shape)
    kept = tuple(1 if i in np.atleast_1d(axis) else n for i, n in enumerate(shape))
    own = {"large": 1e30, "small": 1e-30, "subnormal": 1e-37, "each its own": 10.0 ** RNG.integers(-30, 31, size=kept)}
    x = (x + 1e4 * (scale == "far from 0")) * own.get(scale, 1.0)
    x = x.astype(np.float32)
    x[abs(x) < np.finfo(np.float32).tiny] = 0  # compiled programs flush these
    if scale in ("infinite", "no number"):
        x.flat[x.size // 2] = np.inf if scale == "infinite" else np.nan
    return x


def normal(x: Any, axis: Any) -> Any:
    apart = x - x.mean(axis, keepdims=True)
    return apart / np.sqrt((apart**2).mean(axis, keepdims=True) + 1e-5)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("scale", SCALES)
def test_rows_of_all_scales_have_right_norms_means_deviations_and_layer_norms(layout: Any, scale: str) -> None:
    shape, axis = layout
    x = rows_of(scale, shape, axis)
    wide = x.astype(np.float64)
    size = np.nan_to_num(abs(wide), nan=0, posinf=0).max(axis)

    @nnc.compile
    def found(x: Any) -> Any:
        norm = nnp.linalg.vector_norm(x, axis=axis)
        return norm, nnp.mean(x, axis), nnp.std(x, axis), nn.layer_norm(x, axis=axis)

    norm, mean, deviation, normed = (np.asarray(y, np.float64) for y in found(x))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(norm, np.sqrt((wide**2).sum(axis)), rtol=5e-6)
        assert ((abs(mean - wide.mean(axis)) <= 1e-5 * size + 1.2e-38) | ~np.isfinite(wide.mean(axis))).all()
        if scale != "subnormal":
            np.testing.assert_allclose(deviation, wide.std(axis), rtol=1e-5 if scale != "far from 0" else 1e-3)
        np.testing.assert_allclose(normed, normal(wide, axis), atol=2e-5 if scale != "far from 0" else 5e-3)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e18, 1e30])
def test_slopes_of_deviations_and_norms_do_not_depend_on_the_scale(scale: float) -> None:
    x = RNG.normal(size=(6, 50)) * scale
    x32 = x.astype(np.float32)
    for function in (lambda x: nnp.std(x, 1), lambda x: nnp.linalg.norm(x, axis=1)):
        slope = nnc.compile(nnc.grad(lambda x, f=function: nnp.sum(f(x))))
        np.testing.assert_allclose(slope(x32), slope(nnp.asarray(x, "float64")), rtol=1e-4, atol=1e-6)


def phases_of(function: Any, *specs: TensorSpec) -> tuple[Phases, list[Any]]:
    graph = nnc.make_graph(function)(*(np.zeros(s.shape, s.dtype) for s in specs))
    return Phases.of(graph, Domain.of(graph), guarded=True), [n.outputs[0] for n in graph.nodes if is_reduction(n)]


MATRIX = TensorSpec((8, 32), np.dtype("float32"))


def test_the_sums_of_scaled_rows_are_guarded_and_that_of_usual_ones_is_not() -> None:
    phases, sums = phases_of(lambda x: nnp.linalg.norm(x, axis=1), MATRIX)
    assert [s in phases.guards for s in sums] == [False, True, True, False, False]  # two are there for derivatives
    assert phases.rank[sums[0]] == 1
    assert phases.rank[sums[1]] == 2


def test_choices_of_which_nobody_knows_the_usual_case_guard_nothing() -> None:
    def clamped(x: Any) -> Any:
        total = nnp.sum(x, axis=1)
        return nnp.where(total < 0, 0, total)

    def either(x: Any) -> Any:
        return nnp.where(nnp.max(x, axis=1) < 0, nnp.sum(x * x, axis=1), nnp.sum(x, axis=1))

    for function in (clamped, either):
        phases, _ = phases_of(function, MATRIX)
        assert not any(phases.guards[s] for s in phases.guards if phases.rank[s] == 1)


def test_an_input_that_a_guarded_sum_reads_again_is_not_overwritten_before() -> None:
    """The output is written in the first loop over a row; the guarded sum reads the row later."""

    def function(x: Any) -> Any:
        return x * 2, nnp.linalg.norm(x, axis=1)

    graph = nnc.make_graph(function)(np.zeros((8, 32), "float32"))
    assert (0, 0) not in overwrites(graph, Domain.of(graph)).overwrite
    x = np.full((8, 32), 1e30, np.float32)
    np.testing.assert_allclose(nnc.compile(function, donate_argnums=0)(nnp.array(x))[1], 1e30 * np.sqrt(32), rtol=1e-6)


def test_a_loop_that_few_rows_need_stands_behind_a_branch() -> None:
    graph = nnc.make_graph(lambda x: nnp.linalg.norm(x, axis=1))(np.zeros((8, 320), "float32"))
    views = [
        View.whole(0, TensorSpec((8, 320), np.dtype("float32"))),
        View.whole(1, TensorSpec((8,), np.dtype("float32"))),
    ]
    assert print_graph(graph, views[:1], views[1:], X86).text.count("then") >= 2
