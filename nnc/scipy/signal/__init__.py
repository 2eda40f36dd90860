"""Convolutions, windows and spectra of sampled signals under jax.scipy.signal's names. Integers become float32."""

# ruff: noqa: F403  (the lists name all imports)

from nnc.scipy.signal import convolution, spectra, windows
from nnc.scipy.signal.convolution import *
from nnc.scipy.signal.spectra import *
from nnc.scipy.signal.trends import detrend
from nnc.scipy.signal.windows import *

__all__ = ["detrend"]
__all__ += convolution.__all__
__all__ += spectra.__all__
__all__ += windows.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
