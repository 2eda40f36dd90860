"""SciPy's functions on nnc arrays, under the names of jax.scipy: they trace, differentiate, batch and compile."""

from typing import TYPE_CHECKING

from nnc.errors.names import module_getattr
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


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__ = module_getattr("nnc.scipy")
