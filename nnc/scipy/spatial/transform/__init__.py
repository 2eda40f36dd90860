"""Rotations of space, under jax.scipy.spatial.transform's names: pytrees of quaternions."""

from nnc.scipy.spatial.transform.interpolation import Slerp
from nnc.scipy.spatial.transform.rotations import Rotation

__all__ = ["Rotation", "Slerp"]


def __dir__() -> list[str]:
    return sorted(__all__)
