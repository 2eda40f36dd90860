from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

SUMS = (
    "ij,jk->ik", "ij,kj->ki", "ji,jk->ik", "bij,bjk->bik", "bij,bkj->bik", "ij,j->i", "j,jk->k", "i,i->", "ab,cbde->acde",
    "abcd,cbe->ade", "bic,bcj->bij", "aij,bij->ab",
)  # fmt: skip
SIZES = {"a": 3, "b": 2, "c": 5, "d": 4, "e": 2, "i": 7, "j": 9, "k": 17}


def draw(shape: tuple[int, ...], kind: str, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(kind)


def check(sum_: str, x: Any, y: Any, kind: str) -> None:
    compiled = nnc.compile(lambda x, y: nnp.einsum(sum_, x, y))
    found = compiled(x, y)
    assert "[numpy]" not in compiled.lower(x, y).compile().as_text()
    wanted = np.einsum(sum_, x.astype("complex128"), y.astype("complex128"))
    assert found.dtype == kind
    scale = float(np.finfo(kind).eps) * (1 + np.max(np.abs(wanted), initial=0))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=20 * scale)


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
@pytest.mark.parametrize("sum_", SUMS)
def test_products_of_all_forms(sum_: str, kind: str) -> None:
    left, right = sum_.split("->")[0].split(",")
    x, y = (draw(tuple(SIZES[axis] for axis in axes), kind, len(axes)) for axes in (left, right))
    check(sum_, x, y, kind)
    check(sum_, np.flip(x), np.asfortranarray(y), kind)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 2, 64), (64, 2, 2), (130, 70, 65), (300, 1, 5), (1, 500, 3), (3, 0, 4), (0, 3, 4)]
)
def test_products_of_all_sizes(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    check("ij,jk->ik", draw((m, k), "complex64", 0), draw((k, n), "complex64", 1), "complex64")


def test_a_gate_in_a_loop_runs_without_python_and_has_its_gradient() -> None:
    state = draw((2, 2, 2), "complex128", 0)

    def energy(angle: Any) -> Any:
        c, s = nnp.cos(angle), nnp.sin(angle)
        gate = nnp.stack([nnp.stack([c + 0j, -1j * s]), nnp.stack([-1j * s, c + 0j])])

        def step(i: Any, x: Any) -> Any:
            return nnp.moveaxis(nnp.tensordot(gate, x, axes=((1,), (1,))), 0, 1)

        found = nnc.fori_loop(0, 3, step, state)
        return nnp.sum(nnp.abs(found[0]) ** 2) + nnp.real(nnp.sum(found * found[::-1]))

    angle = np.float64(0.3)
    compiled = nnc.compile(nnc.value_and_grad(energy))
    value, slope = compiled(angle)
    assert "[numpy]" not in compiled.lower(angle).compile().as_text()
    np.testing.assert_allclose(value, energy(angle), rtol=1e-12)
    step = 1e-6
    np.testing.assert_allclose(slope, (energy(angle + step) - energy(angle - step)) / (2 * step), rtol=1e-6)


def test_infinities_stay_in_their_row_and_column() -> None:
    x, y = draw((5, 6), "complex64", 0), draw((6, 4), "complex64", 1)
    plain = np.asarray(nnc.compile(nnp.matmul)(x, y))
    x[2, 3] = np.inf
    found = np.asarray(nnc.compile(nnp.matmul)(x, y))
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(found[others], plain[others])
    assert not np.isfinite(found[2]).any()
