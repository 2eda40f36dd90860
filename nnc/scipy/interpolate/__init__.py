"""Interpolation on grids, under jax.scipy.interpolate's names."""

from nnc.scipy.interpolate.grids import RegularGridInterpolator

__all__ = ["RegularGridInterpolator"]


def __dir__() -> list[str]:
    return sorted(__all__)
