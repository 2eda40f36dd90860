"""SciPy's package for geometry: here only `transform`, the rotations of space."""

from nnc.scipy.spatial import transform

__all__ = ["transform"]


def __dir__() -> list[str]:
    return sorted(__all__)
