"""Fourier transforms and complex numbers in nnc."""

from __future__ import annotations

from typing import Any

import nnc
import nnc.numpy as nnp
from benchmarks.peers.row import Inputs, Step


def _calls(function: Any, *arguments: Any) -> Step:
    compiled, placed = nnc.compile(function), [nnc.asarray(x) for x in arguments]
    return lambda: compiled(*placed)


def rfft(inputs: Inputs) -> Step:
    """Transforms of rows of real numbers."""
    return _calls(nnp.fft.rfft, inputs["x"])


def fft2(inputs: Inputs) -> Step:
    """The transform of an image."""
    return _calls(nnp.fft.fft2, inputs["x"])


def tanh(inputs: Inputs) -> Step:
    """A function of complex numbers."""
    return _calls(nnp.tanh, inputs["x"])


def fluid(inputs: Inputs, *, steps: int) -> Step:
    """The energy of a fluid some steps later, and its gradient with regard to the vorticity at the start."""

    def energy(w: Any, kx: Any, ky: Any, square: Any) -> Any:
        def advance(_: Any, spectrum: Any) -> Any:
            flow = spectrum / square
            u, v = nnp.fft.irfft2(1j * ky * flow), nnp.fft.irfft2(-1j * kx * flow)
            dx, dy = nnp.fft.irfft2(1j * kx * spectrum), nnp.fft.irfft2(1j * ky * spectrum)
            moved = spectrum - 1e-3 * nnp.fft.rfft2(u * dx + v * dy)
            return moved / (1 + 1e-4 * square)

        last = nnc.fori_loop(0, steps, advance, nnp.fft.rfft2(w))
        return nnp.sum(nnp.fft.irfft2(last) ** 2)

    return _calls(nnc.value_and_grad(energy), *(inputs[name] for name in ("w", "kx", "ky", "square")))


def circuit(inputs: Inputs, *, qubits: int) -> Step:
    """The energy of two neighbouring qubits behind rotations and controlled signs, and its gradient."""

    def energy(angles: Any) -> Any:
        state = nnp.zeros(2**qubits, nnp.complex64).at[0].set(1).reshape((2,) * qubits)
        for layer in angles:
            for qubit, angle in enumerate(layer):
                c, s = nnp.cos(angle / 2) + 0j, -1j * nnp.sin(angle / 2)
                gate = nnp.stack([nnp.stack([c, s]), nnp.stack([s, c])])
                state = nnp.moveaxis(nnp.tensordot(gate, state, axes=((1,), (qubit,))), 0, qubit)
            for qubit in range(qubits - 1):
                both = (slice(None),) * qubit + (1, 1)
                state = state.at[both].multiply(-1)
        odds = nnp.abs(state) ** 2
        return nnp.sum(odds[0]) - nnp.sum(odds[1]) + nnp.sum(odds[:, 0]) - nnp.sum(odds[:, 1])

    return _calls(nnc.value_and_grad(energy), inputs["angles"])
