"""SciPy's functions on nnc arrays, under the names of jax.scipy: they trace, differentiate, batch and compile."""

from nnc.scipy import (
    cluster,
    fft,
    integrate,
    interpolate,
    linalg,
    ndimage,
    optimize,
    signal,
    sparse,
    spatial,
    special,
    stats,
)

__all__ = [
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
    "special",
    "stats",
]


def __dir__() -> list[str]:
    return sorted(__all__)
