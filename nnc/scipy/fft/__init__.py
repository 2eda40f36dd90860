"""Fourier and cosine transforms under jax.scipy.fft's and scipy.fft's names; see `nnc.numpy.fft` for the former."""

# ruff: noqa: F403  (the list names all imports)

from nnc.numpy.fft import (
    fft,
    fft2,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftfreq,
    rfftn,
)
from nnc.scipy.fft import cosines
from nnc.scipy.fft.cosines import *

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2",
    "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip
__all__ += cosines.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
