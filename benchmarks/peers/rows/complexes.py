"""Fourier transforms and complex numbers."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.row import Inputs, Row, Work, draw, normal

ROWS_OF_SIGNALS, POINTS = 4096, 256
IMAGE, FLUID, FLUID_STEPS = 512, 64, 20
NUMBERS = 100_000
QUBITS, LAYERS = 7, 2


def _signals() -> Inputs:
    return {"x": normal(draw(), ROWS_OF_SIGNALS, POINTS)}


def _image() -> Inputs:
    rng = draw()
    return {"x": (normal(rng, IMAGE, IMAGE) + 1j * normal(rng, IMAGE, IMAGE)).astype(np.complex64)}


def _vorticity() -> Inputs:
    waves = np.fft.fftfreq(FLUID, 1 / FLUID).astype(np.float32)
    kx, ky = np.meshgrid(waves, np.abs(waves[: FLUID // 2 + 1]), indexing="ij")
    square = kx**2 + ky**2
    spectrum = np.fft.rfft2(draw().standard_normal((FLUID, FLUID))) * np.exp(-square / 32)
    start = np.fft.irfft2(spectrum).astype(np.float32)
    return {"w": start, "kx": kx, "ky": ky, "square": np.where(square, square, 1).astype(np.float32)}


def _numbers() -> Inputs:
    rng = draw()
    return {"x": (normal(rng, NUMBERS) + 1j * normal(rng, NUMBERS)).astype(np.complex64)}


def _angles() -> Inputs:
    return {"angles": normal(draw(), LAYERS, QUBITS)}


_PEERS = ("nnc", "jax", "torch")
_FLUID_POINTS = FLUID * FLUID
_GATES = LAYERS * QUBITS

ROWS = (
    Row(
        "rfft",
        f"rfft of {ROWS_OF_SIGNALS} x {POINTS}",
        "complexes.rfft",
        _signals,
        Work(nbytes=8 * ROWS_OF_SIGNALS * POINTS),
        "complexes",
        frameworks=(*_PEERS, "numpy"),
    ),
    Row(
        "fft2",
        f"fft2 of {IMAGE}², complex64",
        "complexes.fft2",
        _image,
        Work(nbytes=16 * IMAGE * IMAGE),
        "complexes",
        frameworks=(*_PEERS, "numpy"),
    ),
    Row(
        "tanh",
        f"tanh of {NUMBERS:,} complex64",
        "complexes.tanh",
        _numbers,
        Work(nbytes=16 * NUMBERS),
        "complexes",
        frameworks=(*_PEERS, "numpy"),
    ),
    Row(
        "fluid",
        f"spectral Navier-Stokes, {FLUID}², {FLUID_STEPS} steps, with gradient",
        "complexes.fluid",
        _vorticity,
        # five transforms a step, of 2.5 n log2 n operations, and as much twice backwards
        Work(flops=FLUID_STEPS * 3 * 5 * 2.5 * _FLUID_POINTS * np.log2(_FLUID_POINTS)),
        "fluid",
        {"steps": FLUID_STEPS},
        frameworks=_PEERS,
        rtol=1e-3,
    ),
    Row(
        "circuit",
        f"circuit of {QUBITS} qubits and {_GATES} gates, with gradient",
        "complexes.circuit",
        _angles,
        Work(flops=3 * _GATES * 2**QUBITS * 14),  # two products and a sum of complex numbers each
        "circuit",
        {"qubits": QUBITS},
        frameworks=_PEERS,
    ),
)
