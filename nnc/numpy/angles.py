"""Angles: of complex numbers, and in degrees."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy.elementwise import atan2, multiply
from nnc.numpy.operands import to_value
from nnc.typing import ArrayLike

__all__ = ["angle", "deg2rad", "degrees", "rad2deg", "radians"]


@spelled
def deg2rad(x: ArrayLike, /) -> Array:
    """Returns an angle in degrees as radians.

    Args:
        x: degrees, any shape.

    Example:
        >>> nnp.deg2rad(180.0)
        Array(3.1415927, dtype=float32)
    """
    return multiply(x, math.pi / 180)


@spelled
def rad2deg(x: ArrayLike, /) -> Array:
    """Returns an angle in radians as degrees.

    Args:
        x: radians, any shape.

    Example:
        >>> nnp.rad2deg(nnp.pi)
        Array(180., dtype=float32)
    """
    return multiply(x, 180 / math.pi)


radians, degrees = deg2rad, rad2deg


@spelled
def angle(x: ArrayLike, /, deg: bool = False) -> Array:
    """Returns the angle of a complex number in radians, in [-π, π]; in degrees with `deg`.

    Args:
        x: any shape.
        deg: the result is in degrees.

    Example:
        >>> nnp.angle(1j)
        Array(1.5707964, dtype=float32)
    """
    x = to_value(x, "angle")
    radians = atan2(x.imag, x.real)
    return rad2deg(radians) if deg else radians
