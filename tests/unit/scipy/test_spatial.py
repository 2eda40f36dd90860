"""nnc.scipy.spatial and nnc.scipy.cluster agree with SciPy at once, compiled and mapped; their derivatives, with differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.spatial.transform

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ShapeError
from nnc.scipy.cluster.vq import vq
from nnc.scipy.spatial.transform import Rotation, Slerp
from nnc.testing import check_grads

Theirs = scipy.spatial.transform.Rotation
RNG = np.random.default_rng(5)
Q = RNG.normal(size=(6, 4))
V = RNG.normal(size=(6, 3))
ANGLES = RNG.uniform(-1.5, 1.5, size=(6, 3))
SEQUENCES = ["xyz", "zxy", "XYZ", "ZYX", "zxz", "ZXZ", "yxy", "YZY"]

# name: a function of a class of rotations and operands, the operands
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "matrix": (lambda r, q: r.from_quat(q).as_matrix(), (Q,)),
    "from_matrix": (lambda r, q: r.from_matrix(r.from_quat(q).as_matrix()).as_quat(canonical=True), (Q,)),
    "rotvec": (lambda r, v: r.from_rotvec(v).as_rotvec(), (V,)),
    "small rotvec": (lambda r, v: r.from_rotvec(v * 1e-2).as_rotvec(), (V,)),
    "rotvec in degrees": (lambda r, v: r.from_rotvec(v * 30, degrees=True).as_rotvec(degrees=True), (V,)),
    "from_rotvec": (lambda r, v: r.from_rotvec(3 * v).as_quat(), (V,)),
    "mrp": (lambda r, v: r.from_mrp(v).as_mrp(), (V,)),
    "scalar first": (lambda r, q: r.from_quat(q, scalar_first=True).as_quat(scalar_first=True), (Q,)),
    "inverse": (lambda r, q: r.from_quat(q).inv().as_matrix(), (Q,)),
    "product": (lambda r, q, v: (r.from_quat(q) * r.from_rotvec(v)).as_matrix(), (Q, V)),
    "apply": (lambda r, q, v: r.from_quat(q).apply(v), (Q, V)),
    "apply inverse": (lambda r, q, v: r.from_quat(q).apply(v, inverse=True), (Q, V)),
    "magnitude": (lambda r, q: r.from_quat(q).magnitude(), (Q,)),
    **{
        f"from_euler {seq}": (
            lambda r, a, seq=seq: r.from_euler(seq, a[..., : len(seq)]).as_matrix(),
            (ANGLES,),
        )
        for seq in ("x", "zy", "xyz", "ZYX", "zxz")
    },
    **{f"as_euler {seq}": (lambda r, q, seq=seq: r.from_quat(q).as_euler(seq), (Q,)) for seq in SEQUENCES},
    "as_euler in degrees": (lambda r, a: r.from_euler("xyz", a, degrees=True).as_euler("xyz", degrees=True), (ANGLES,)),
}


@pytest.mark.parametrize("name", CASES)
def test_rotations_agree_with_scipy_at_once_compiled_and_mapped(name: str) -> None:
    function, operands = CASES[name]

    def ours(*xs: Any) -> Any:
        return function(Rotation, *xs)

    want = function(Theirs, *operands)
    for run in (ours, nnc.compile(ours), nnc.vmap(ours)):
        np.testing.assert_allclose(run(*operands), want, rtol=1e-12, atol=1e-13)
    small = ours(*(x.astype(np.float32) for x in operands))
    assert small.dtype == np.float32
    rounding = 2e-6  # of quaternions, which small angles inherit
    np.testing.assert_allclose(small, want, rtol=1e-4, atol=np.degrees(rounding) if "in degrees" in name else rounding)


@pytest.mark.parametrize("name", [name for name in CASES if "euler" not in name or name.endswith(("ZYX", "zxz"))])
def test_derivatives_agree_with_differences(name: str) -> None:
    function, operands = CASES[name]
    check_grads(lambda *xs: function(Rotation, *xs), tuple(x[:2] for x in operands), order=1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seq", SEQUENCES)
@pytest.mark.parametrize("middle", [0.0, 90.0, -90.0, 180.0])
def test_angles_of_which_only_the_sum_is_determined_lead_back(seq: str, middle: float) -> None:
    quat = Theirs.from_euler(seq, [20.0, middle, 50.0], degrees=True).as_quat()
    angles = Rotation.from_quat(quat).as_euler(seq)
    back = Rotation.from_euler(seq, angles)
    np.testing.assert_allclose(back.as_matrix(), Theirs.from_quat(quat).as_matrix(), atol=1e-7)
    assert np.abs(np.asarray(angles)).max() <= np.pi


def test_derivatives_exist_at_the_identity() -> None:
    def there_and_back(v: Any) -> Any:
        return Rotation.from_rotvec(v).as_rotvec()

    for v in (np.zeros(3), np.array([1e-9, 0, 0]), np.array([0.0316, 0, 0])):
        np.testing.assert_allclose(nnc.jacrev(there_and_back)(v), np.eye(3), atol=1e-13)
        np.testing.assert_allclose(nnc.jacfwd(nnc.jacrev(there_and_back))(v), np.zeros((3, 3, 3)), atol=1e-12)


def test_rotations_in_a_row_are_indexed_joined_and_averaged() -> None:
    ours, theirs = Rotation.from_quat(Q), Theirs.from_quat(Q)
    assert len(ours) == 6 and not ours.single and ours[0].single
    np.testing.assert_allclose(ours[1:3].as_matrix(), theirs[1:3].as_matrix(), atol=1e-14)
    joined = Rotation.concatenate([ours[0], ours[4:]])
    np.testing.assert_allclose(joined.as_matrix(), theirs[[0, 4, 5]].as_matrix(), atol=1e-14)
    for weights in (None, np.arange(1.0, 7)):
        mean = nnc.compile(lambda r, w=weights: r.mean(w))(ours)
        np.testing.assert_allclose(mean.as_matrix(), theirs.mean(weights).as_matrix(), atol=1e-13)
    np.testing.assert_array_equal(Rotation.identity().as_matrix(), np.eye(3))
    assert Rotation.identity(2, dtype="float64").as_quat().shape == (2, 4)
    assert Rotation.from_euler("z", 0.5).single and len(Rotation.from_euler("z", np.ones((3, 1)))) == 3
    assert nnc.tree.leaves(ours)[0] is ours.quat


def test_random_rotations_turn_a_vector_to_everywhere() -> None:
    turned = np.asarray(Rotation.random(nnc.random.key(0), 2000).apply(np.array([0.0, 0, 1])))
    np.testing.assert_allclose(turned.mean(0), 0, atol=0.06)
    np.testing.assert_allclose((turned**2).mean(0), 1 / 3, atol=0.03)


def test_canonical_quaternions_agree_with_scipy() -> None:
    q = np.array([[1.0, 0, 0, 0], [-1, 2, 0, 0], [0, -1, 1, 0], [0, 0, -1, 0], [1, 1, 1, -1]])
    np.testing.assert_allclose(
        Rotation.from_quat(q).as_quat(canonical=True), Theirs.from_quat(q).as_quat(canonical=True), atol=1e-15
    )


def test_rotations_between_others_agree_with_scipy() -> None:
    times = np.array([0.0, 1, 2.5, 3, 4, 6])
    at = np.array([0.0, 0.3, 1, 2, 3.7, 6])
    want = scipy.spatial.transform.Slerp(times, Theirs.from_quat(Q))(at).as_matrix()

    def between(q: Any, t: Any) -> Any:
        return Slerp(times, Rotation.from_quat(q))(t).as_matrix()

    for run in (between, nnc.compile(between)):
        np.testing.assert_allclose(run(Q, at), want, atol=1e-13)
    np.testing.assert_allclose(nnc.vmap(between, in_axes=(None, 0))(Q, at), want, atol=1e-13)
    assert between(Q, 0.5).shape == (3, 3)
    check_grads(lambda q: between(q, 0.3), (Q,), order=1, rtol=1e-4)
    made = nnc.compile(lambda s, t: s(t).quat)(Slerp(times, Rotation.from_quat(Q)), at)
    assert made.shape == (6, 4)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_codes_agree_with_scipy(shape: tuple[int, ...]) -> None:
    x, book = RNG.normal(size=(7, *shape)), RNG.normal(size=(4, *shape))
    want = scipy.cluster.vq.vq(x, book)
    for run in (vq, nnc.compile(vq)):
        codes, distances = run(x, book)
        np.testing.assert_array_equal(codes, want[0])
        np.testing.assert_allclose(distances, want[1], rtol=1e-14)
        assert codes.dtype == np.int32
    assert vq(x.astype(np.float32), book.astype(np.float32))[1].dtype == np.float32
    check_grads(lambda x, book: vq(x, book)[1], (x, book), order=1)


def test_a_vector_that_is_a_code_has_a_finite_derivative() -> None:
    gradient = nnc.grad(lambda x: nnp.sum(vq(x, np.eye(2))[1]))(np.eye(2))
    assert np.isfinite(np.asarray(gradient)).all()


MISTAKES = {
    "quaternions of three": (lambda: Rotation.from_quat(V), ShapeError, r"quat has shape \(6, 3\)"),
    "matrices of two": (lambda: Rotation.from_matrix(np.eye(2)), ShapeError, r"matrix has shape \(2, 2\)"),
    "deep batches": (lambda: Rotation.from_rotvec(V[None]), ShapeError, r"rotvec has shape \(1, 6, 3\)"),
    "mixed axes": (lambda: Rotation.from_euler("xYz", V), ArgumentError, "seq is 'xYz'"),
    "equal axes": (lambda: Rotation.from_euler("xxz", V), ArgumentError, "seq is 'xxz'"),
    "two angles": (lambda: Rotation.from_quat(Q).as_euler("xy"), ArgumentError, "seq is 'xy'"),
    "angles for other axes": (lambda: Rotation.from_euler("xy", V), ShapeError, r"angles has shape \(6, 3\)"),
    "vectors of four": (lambda: Rotation.from_quat(Q).apply(Q), ShapeError, r"vectors has shape \(6, 4\)"),
    "weights": (lambda: Rotation.from_quat(Q).mean(np.ones(2)), ShapeError, r"weights has shape \(2,\)"),
    "index of one": (lambda: Rotation.from_quat(Q[0])[0], ShapeError, "single rotation"),
    "length of one": (lambda: len(Rotation.from_quat(Q[0])), ShapeError, "single rotation"),
    "times for others": (lambda: Slerp(np.arange(3.0), Rotation.from_quat(Q)), ShapeError, "a rotation for each time"),
    "falling times": (lambda: Slerp(-np.arange(6.0), Rotation.from_quat(Q)), ArgumentError, "do not rise"),
    "codes of other sizes": (lambda: vq(V, Q), ShapeError, "vectors of one size"),
    "no codes": (lambda: vq(V, V[:0]), ShapeError, "k ≥ 1"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_worded(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text) as found:
        call()
    assert "Fix:" in str(found.value)
