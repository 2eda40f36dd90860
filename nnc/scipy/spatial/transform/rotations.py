"""Rotations of space, which nnc.scipy.spatial.transform shows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnc import random, tree
from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy.angles import deg2rad, rad2deg
from nnc.numpy.creation import ones, zeros
from nnc.numpy.joining import concatenate
from nnc.numpy.linalg import eigh, matmul
from nnc.numpy.manipulation import atleast_2d, matrix_transpose, roll
from nnc.numpy.operands import to_value
from nnc.scipy.spatial.transform import quaternions
from nnc.typing import ArrayLike, DTypeLike


def _floats(where: str, x: ArrayLike, name: str, shape: tuple[int, ...], batch: int = 1) -> Array:
    """`x` as floats of this shape, or of at most `batch` axes more.

    Raises:
        ShapeError: it has another shape.
    """
    (x,) = promote(x, where=where, to=dtypes.to_float)
    value = to_value(x, where, name)
    if value.spec.shape[value.spec.ndim - len(shape) :] != shape or value.spec.ndim > len(shape) + batch:
        wanted = ", ".join(map(str, shape))
        problem = f"{name} has shape {value.spec.shape}."
        fix = f"pass ({wanted}) for one rotation, or (n, {wanted}) for several."
        raise user_error(ShapeError, where, problem, operands={name: value.spec}, fix=fix)
    return value


def _axes(where: str, seq: str, counts: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Returns the axes that a text names, and whether they turn with the object.

    Raises:
        ArgumentError: it names none, or twice the same one after the other.
    """
    known = len(seq) in counts and re.fullmatch("[XYZ]+|[xyz]+", seq)
    if not known or any(a == b for a, b in itertools.pairwise(seq)):
        fix = 'name axes as in "xyz" (they stay) or "XYZ" (they turn with the object), no two equal ones in a row.'
        raise user_error(ArgumentError, where, f"seq is {seq!r}.", fix=fix)
    return tuple("xyz".index(axis) for axis in seq.lower()), seq.isupper()


@tree.register_dataclass
@dataclass(frozen=True)
class Rotation:
    """A rotation of space, or several in a row: a pytree of quaternions, made by `from_rotvec`, `from_quat` and others.

    `a * b` rotates by `b` first, `r[i]` is one of several. All methods are differentiable, at the identity, too.

    Args:
        quat: (4,) or (n, 4), quaternions (x, y, z, w) of length 1.

    Example:
        >>> turn = Rotation.from_euler("z", 90.0, degrees=True)
        >>> (turn * turn).apply(np.asarray([1.0, 0.0, 0.0])).round(3)
        Array([-1.,  0.,  0.], dtype=float64)
    """

    quat: Array

    @classmethod
    @spelled
    def from_quat(cls, quat: ArrayLike, *, scalar_first: bool = False) -> Rotation:
        """Makes rotations of quaternions, which are divided by their lengths.

        Args:
            quat: (4,) or (n, 4).
            scalar_first: they are (w, x, y, z) rather than (x, y, z, w).

        Raises:
            ShapeError: `quat` has another shape.
        """
        value = _floats("Rotation.from_quat", quat, "quat", (4,))
        return cls(quaternions.normalized(roll(value, -1, axis=-1) if scalar_first else value))

    @classmethod
    @spelled
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """Makes rotations of matrices, which are taken to be orthogonal.

        Args:
            matrix: (3, 3) or (n, 3, 3).

        Raises:
            ShapeError: `matrix` has another shape.
        """
        return cls(quaternions.of_matrix(_floats("Rotation.from_matrix", matrix, "matrix", (3, 3))))

    @classmethod
    @spelled
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """Makes rotations of vectors along their axes, whose lengths are the angles.

        Args:
            rotvec: (3,) or (n, 3).
            degrees: lengths are degrees.

        Raises:
            ShapeError: `rotvec` has another shape.
        """
        value = _floats("Rotation.from_rotvec", rotvec, "rotvec", (3,))
        return cls(quaternions.of_vector(deg2rad(value) if degrees else value))

    @classmethod
    @spelled
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """Makes rotations of modified Rodrigues parameters: vectors along their axes, of length tan(angle / 4).

        Args:
            mrp: (3,) or (n, 3).

        Raises:
            ShapeError: `mrp` has another shape.
        """
        return cls(quaternions.of_parameters(_floats("Rotation.from_mrp", mrp, "mrp", (3,))))

    @classmethod
    @spelled
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """Makes rotations of Euler angles.

        Args:
            seq: one to three axes, "xyz" for axes that stay, "XYZ" for axes that turn with the object.
            angles: one for each axis, or (n, axes); about one axis also a number.
            degrees: angles are degrees.

        Raises:
            ArgumentError: there are no such axes.
            ShapeError: `angles` has another shape.
        """
        axes, intrinsic = _axes("Rotation.from_euler", seq, (1, 2, 3))
        (angles,) = promote(angles, where="Rotation.from_euler", to=dtypes.to_float)
        value = to_value(angles, "Rotation.from_euler", "angles")
        value = _floats("Rotation.from_euler", value if value.spec.ndim else value[None], "angles", (len(axes),))
        return cls(quaternions.of_angles(deg2rad(value) if degrees else value, axes, intrinsic=intrinsic))

    @classmethod
    @spelled
    def identity(cls, num: int | None = None, dtype: DTypeLike = dtypes.float32) -> Rotation:
        """Makes rotations that change nothing.

        Args:
            num: how many; None for a single one.
            dtype: the dtype of the quaternions.
        """
        lead = () if num is None else (num,)
        return cls(concatenate([zeros((*lead, 3), dtype), ones((*lead, 1), dtype)], axis=-1))

    @classmethod
    @spelled
    def random(cls, key: ArrayLike, num: int | None = None, dtype: DTypeLike = dtypes.float32) -> Rotation:
        """Draws rotations, each as likely as any other.

        Args:
            key: a key of `nnc.random`.
            num: how many; None for a single one.
            dtype: the dtype of the quaternions.
        """
        return cls(quaternions.normalized(random.normal(key, (4,) if num is None else (num, 4), dtype)))

    @classmethod
    @spelled
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Puts rotations in a row.

        Args:
            rotations: single ones, or rows.
        """
        return cls(concatenate([atleast_2d(each.quat) for each in rotations], axis=0))

    @spelled
    def as_quat(self, canonical: bool = False, *, scalar_first: bool = False) -> Array:
        """Returns quaternions (x, y, z, w) of length 1.

        Args:
            canonical: choose the one of two with w > 0; where w is 0, the first other component is positive.
            scalar_first: return (w, x, y, z).
        """
        q = self.quat
        if canonical:
            sign = zeros((*q.spec.shape[:-1], 1), q.spec.dtype)
            for i in (3, 0, 1, 2):
                sign = el.where(el.equal(sign, 0), el.sign(q[..., i : i + 1]), sign)
            q = q * sign
        return roll(q, 1, axis=-1) if scalar_first else q

    def as_matrix(self) -> Array:
        """Returns matrices (3, 3) or (n, 3, 3)."""
        return quaternions.to_matrix(self.quat)

    @spelled
    def as_rotvec(self, degrees: bool = False) -> Array:
        """Returns vectors along the axes, whose lengths are the angles, from 0 to π.

        Args:
            degrees: lengths are degrees.
        """
        value = quaternions.to_vector(self.quat)
        return rad2deg(value) if degrees else value

    def as_mrp(self) -> Array:
        """Returns modified Rodrigues parameters: vectors along the axes, of length tan(angle / 4)."""
        return quaternions.to_parameters(self.quat)

    @spelled
    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Returns Euler angles (3,) or (n, 3). Where the first and the third axis coincide, the third angle is 0.

        Args:
            seq: three axes, "xyz" for axes that stay, "XYZ" for axes that turn with the object.
            degrees: return degrees.

        Raises:
            ArgumentError: there are no such axes.
        """
        (i, j, k), intrinsic = _axes("Rotation.as_euler", seq, (3,))
        value = quaternions.to_angles(self.quat, (i, j, k), intrinsic=intrinsic)
        return rad2deg(value) if degrees else value

    @spelled
    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Rotates vectors.

        Args:
            vectors: (3,) or (n, 3).
            inverse: rotate back.

        Raises:
            ShapeError: `vectors` has another shape.
        """
        matrix = self.as_matrix()
        matrix = matrix_transpose(matrix) if inverse else matrix
        return matmul(matrix, _floats("Rotation.apply", vectors, "vectors", (3,))[..., None])[..., 0]

    def inv(self) -> Rotation:
        """Returns the rotations back."""
        return Rotation(quaternions.conjugate(self.quat))

    def magnitude(self) -> Array:
        """Returns the angles, from 0 to π."""
        return quaternions.angle_of(self.quat)

    @spelled
    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """Returns the rotation that is nearest to all, by the squares of sines of half the angles between (Markley et al., 2007).

        Args:
            weights: (n,), by default 1.

        Raises:
            ShapeError: there is not a weight for each rotation.
        """
        rows = atleast_2d(self.quat)
        n = rows.spec.shape[0]
        weighted = rows
        if weights is not None:
            weighted = rows * _floats("Rotation.mean", weights, "weights", (n,), batch=0)[:, None]
        return Rotation(eigh(matmul(matrix_transpose(weighted), rows))[1][:, -1])

    @property
    def single(self) -> bool:
        """Whether it is one rotation, rather than a row."""
        return self.quat.ndim == 1

    def __mul__(self, other: Rotation) -> Rotation:
        p, q = promote(self.quat, other.quat, where="Rotation.__mul__")
        return Rotation(quaternions.normalized(quaternions.product(p, q)))

    def __getitem__(self, index: Any) -> Rotation:
        self._check_row("r[index]")
        return Rotation(self.quat[index])

    def __len__(self) -> int:
        self._check_row("len")
        return int(self.quat.shape[0])

    def _check_row(self, where: str) -> None:
        if self.single:
            problem = "it is a single rotation."
            raise user_error(ShapeError, where, problem, fix="pass (n, 4) quaternions, or Rotation.concatenate([r]).")
