"""Fourier transforms and complex numbers in NumPy."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.peers.row import Inputs, Step


def rfft(inputs: Inputs) -> Step:
    """Transforms of rows of real numbers."""
    return partial(np.fft.rfft, inputs["x"])


def fft2(inputs: Inputs) -> Step:
    """The transform of an image."""
    return partial(np.fft.fft2, inputs["x"])


def tanh(inputs: Inputs) -> Step:
    """A function of complex numbers."""
    return partial(np.tanh, inputs["x"])
