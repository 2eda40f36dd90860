"""Quaternions (x, y, z, w) along the last axis, and the other forms of rotations that they are made of and turned into.

Derivatives exist at the identity, too: functions of an angle are series of its square there.
"""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.numpy.joining import concatenate, stack
from nnc.numpy.reductions import argmax
from nnc.numpy.reductions import sum as sum_
from nnc.numpy.searching import take_along_axis

_SMALL = 1e-3  # square of an angle, below which four terms of a series are exact in float64


def _square(v: Array) -> Array:
    return sum_(v * v, axis=-1, keepdims=True)


def normalized(q: Array) -> Array:
    """Quaternions divided by their lengths."""
    return q / el.sqrt(_square(q))


def product(p: Array, q: Array) -> Array:
    """Returns the quaternions of rotations by `q`, then by `p`."""
    x, y, z, w = (p[..., i] for i in range(4))
    a, b, c, d = (q[..., i] for i in range(4))
    parts = [
        w * a + x * d + y * c - z * b,
        w * b - x * c + y * d + z * a,
        w * c + x * b - y * a + z * d,
        w * d - x * a - y * b - z * c,
    ]
    return stack(parts, axis=-1)


def conjugate(q: Array) -> Array:
    """Returns the quaternions of the inverse rotations."""
    return concatenate([-q[..., :3], q[..., 3:]], axis=-1)


def to_matrix(q: Array) -> Array:
    """Returns the matrices (..., 3, 3) of rotations."""
    x, y, z, w = (q[..., i] for i in range(4))
    rows = [
        [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w],
    ]
    return stack([stack(row, axis=-1) for row in rows], axis=-2)


def of_matrix(m: Array) -> Array:
    """Returns the quaternions of matrices of rotations, by the largest of their components (Shepperd, 1978)."""
    diagonal = [m[..., i, i] for i in range(3)]
    trace = diagonal[0] + diagonal[1] + diagonal[2]
    forms = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts = {i: 1 - trace + 2 * diagonal[i], j: m[..., j, i] + m[..., i, j], k: m[..., k, i] + m[..., i, k]}
        forms.append(stack([*(parts[axis] for axis in range(3)), m[..., k, j] - m[..., j, k]], axis=-1))
    turns = [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]]
    forms.append(stack([*turns, 1 + trace], axis=-1))
    chosen = argmax(stack([*diagonal, trace], axis=-1), axis=-1)
    return normalized(take_along_axis(stack(forms, axis=-2), chosen[..., None, None], axis=-2)[..., 0, :])


def to_vector(q: Array) -> Array:
    """Returns the rotation vectors: axes whose lengths are angles from 0 to π."""
    q = el.where(el.less(q[..., 3:], 0), -q, q)
    square = _square(q[..., :3])  # of the sine of half the angle
    small = el.less(square, _SMALL)
    sine = el.sqrt(el.where(small, 1, square))
    series = 2 + square * (1 / 3 + square * (3 / 20 + square * (5 / 56 + square * 35 / 576)))
    return q[..., :3] * el.where(small, series, 2 * el.arctan2(sine, q[..., 3:]) / sine)


def of_vector(v: Array) -> Array:
    """Returns the quaternions of rotation vectors."""
    square = _square(v)
    small = el.less(square, _SMALL)
    angle = el.sqrt(el.where(small, 1, square))
    sine = 0.5 - square * (1 / 48 - square * (1 / 3840 - square / 645120))
    cosine = 1 - square * (1 / 8 - square * (1 / 384 - square / 46080))
    return concatenate(
        [v * el.where(small, sine, el.sin(angle / 2) / angle), el.where(small, cosine, el.cos(angle / 2))], axis=-1
    )


def to_parameters(q: Array) -> Array:
    """Returns the modified Rodrigues parameters: axes whose lengths are tangents of a quarter of the angle."""
    q = el.where(el.less(q[..., 3:], 0), -q, q)
    return q[..., :3] / (1 + q[..., 3:])


def of_parameters(v: Array) -> Array:
    """Returns the quaternions of modified Rodrigues parameters."""
    square = _square(v)
    return concatenate([2 * v, 1 - square], axis=-1) / (1 + square)


def angle_of(q: Array) -> Array:
    """Returns the angles of rotations, from 0 to π."""
    return 2 * el.arctan2(el.sqrt(_square(q[..., :3])), el.abs(q[..., 3:]))[..., 0]


def of_angles(angles: Array, axes: tuple[int, ...], *, intrinsic: bool) -> Array:
    """Returns the quaternions of rotations about axes, one after the other."""
    found: Array | None = None
    for place, axis in enumerate(axes):
        half = angles[..., place] / 2
        sine, cosine = el.sin(half), el.cos(half)
        turn = stack([*(sine if i == axis else 0 * sine for i in range(3)), cosine], axis=-1)
        found = turn if found is None else product(found, turn) if intrinsic else product(turn, found)
    assert found is not None
    return found


def to_angles(q: Array, axes: tuple[int, int, int], *, intrinsic: bool) -> Array:
    """Euler angles about three axes (Bernardes and Viollet, 2022); the third is 0 where only one of two angles is determined."""
    i, j, k = axes[::-1] if intrinsic else axes
    symmetric = i == k
    k = 3 - i - j if symmetric else k
    sign = (i - j) * (j - k) * (k - i) // 2
    w = q[..., 3]
    a, b, c, d = w, q[..., i], q[..., j], q[..., k] * sign
    if not symmetric:
        a, b, c, d = w - c, b + d, c + w, d - b
    middle = 2 * el.arctan2(el.hypot(c, d), el.hypot(a, b))
    total, difference = el.arctan2(b, a), el.arctan2(d, c)
    outer = [total - difference, (total + difference) * (1 if symmetric else sign)]
    first, third = outer[::-1] if intrinsic else outer
    at_start, at_end = (el.less_equal(el.abs(middle - end), 1e-7) for end in (0, math.pi))
    first = el.where(at_start, 2 * total, el.where(at_end, 2 * difference * (1 if intrinsic else -1), first))
    if intrinsic and not symmetric:
        first = el.where(el.logical_or(at_start, at_end), first * sign, first)
    third = el.where(el.logical_or(at_start, at_end), 0, third)
    angles = stack([first, middle - (0 if symmetric else math.pi / 2), third], axis=-1)
    return angles - 2 * math.pi * el.round(angles / (2 * math.pi))
