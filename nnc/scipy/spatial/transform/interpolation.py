"""Interpolation between rotations, which nnc.scipy.spatial.transform shows."""

from __future__ import annotations

import numpy as np

from nnc import tree
from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy.operands import in_dtype, known_or_none
from nnc.numpy.searching import searchsorted, take
from nnc.scipy.spatial.transform.rotations import Rotation
from nnc.typing import ArrayLike


class Slerp:
    """Rotations between given ones, with constant speed from one to the next: a function of time, and a pytree of its arrays.

    Times outside are extrapolated from the nearest pair.

    Args:
        times: (n,), rising, n ≥ 2.
        rotations: one for each time.

    Raises:
        ShapeError: there is not one rotation for each time, or there are fewer than two.
        ArgumentError: the times do not rise.

    Example:
        >>> from nnc.scipy.spatial.transform import Rotation
        >>> ends = Rotation.from_euler("z", np.asarray([[0.0], [90.0]]), degrees=True)
        >>> Slerp(np.asarray([0.0, 1.0]), ends)(0.5).as_euler("xyz", degrees=True).round(3)
        Array([ 0.,  0., 45.], dtype=float64)
    """

    times: Array
    rotations: Rotation
    rotvecs: Array

    @spelled
    def __init__(self, times: ArrayLike, rotations: Rotation) -> None:
        self.rotations = rotations
        self.times = in_dtype(times, rotations.quat.dtype, "Slerp", "times")
        n = self.times.spec.shape
        if rotations.single or n != (len(rotations),) or n[0] < 2:
            problem = "there must be a rotation for each time, and two or more."
            operands = {"times": self.times.spec, "rotations": rotations.quat.spec}
            fix = "pass (n,) times and n rotations."
            raise user_error(ShapeError, "Slerp", problem, operands=operands, fix=fix)
        found = known_or_none(self.times)
        if found is not None and not (np.diff(found) > 0).all():
            raise user_error(ArgumentError, "Slerp", "the times do not rise.", fix="sort them, each of another value.")
        self.rotvecs = (rotations[:-1].inv() * rotations[1:]).as_rotvec()

    @spelled
    def __call__(self, times: ArrayLike) -> Rotation:
        """Returns the rotation at a time, or a row of them.

        Args:
            times: a number, or (m,).
        """
        t = in_dtype(times, self.times.dtype, "Slerp", "times")
        i = el.clip(searchsorted(self.times, t) - 1, 0, self.times.shape[0] - 2)
        begin = take(self.times, i)
        share = (t - begin) / (take(self.times, i + 1) - begin)
        part = Rotation.from_rotvec(take(self.rotvecs, i, axis=0) * share[..., None])
        return Rotation(take(self.rotations.quat, i, axis=0)) * part


def _flatten(f: Slerp) -> tuple[tuple[Array, Rotation, Array], None]:
    return (f.times, f.rotations, f.rotvecs), None


def _unflatten(_: None, parts: tuple[Array, Rotation, Array]) -> Slerp:
    f = object.__new__(Slerp)
    f.times, f.rotations, f.rotvecs = parts
    return f


tree.register(Slerp, _flatten, _unflatten)
