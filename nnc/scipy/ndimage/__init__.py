"""Images between their pixels, under jax.scipy.ndimage's names."""

from nnc.scipy.ndimage.coordinates import map_coordinates

__all__ = ["map_coordinates"]


def __dir__() -> list[str]:
    return sorted(__all__)
