"""Fourier transforms and complex numbers in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.peers.row import Inputs, Step
from benchmarks.peers.with_torch.wrap import Wrap, tensors


def _calls(function: Any, x: Any) -> Step:
    def step() -> Any:
        with torch.inference_mode():
            return function(x)

    return step


def rfft(inputs: Inputs, wrap: Wrap) -> Step:
    """Transforms of rows of real numbers."""
    return _calls(wrap(torch.fft.rfft), *tensors(inputs, "x"))


def fft2(inputs: Inputs, wrap: Wrap) -> Step:
    """The transform of an image."""
    return _calls(wrap(torch.fft.fft2), *tensors(inputs, "x"))


def tanh(inputs: Inputs, wrap: Wrap) -> Step:
    """A function of complex numbers."""
    return _calls(wrap(torch.tanh), *tensors(inputs, "x"))


def _with_gradient(function: Any, x: Any) -> Step:
    x.requires_grad_()

    def step() -> Any:
        value = function(x)
        (slope,) = torch.autograd.grad(value, x)
        return value.detach(), slope

    return step


def fluid(inputs: Inputs, wrap: Wrap, *, steps: int) -> Step:
    """The energy of a fluid some steps later, and its gradient with regard to the vorticity at the start."""
    w, kx, ky, square = tensors(inputs, "w", "kx", "ky", "square")

    @wrap
    def energy(w: Any) -> Any:
        spectrum = torch.fft.rfft2(w)
        for _ in range(steps):
            flow = spectrum / square
            u, v = torch.fft.irfft2(1j * ky * flow), torch.fft.irfft2(-1j * kx * flow)
            dx, dy = torch.fft.irfft2(1j * kx * spectrum), torch.fft.irfft2(1j * ky * spectrum)
            spectrum = (spectrum - 1e-3 * torch.fft.rfft2(u * dx + v * dy)) / (1 + 1e-4 * square)
        return torch.sum(torch.fft.irfft2(spectrum) ** 2)

    return _with_gradient(energy, w)


def circuit(inputs: Inputs, wrap: Wrap, *, qubits: int) -> Step:
    """The energy of two neighbouring qubits behind rotations and controlled signs, and its gradient."""

    @wrap
    def energy(angles: Any) -> Any:
        state = torch.zeros((2,) * qubits, dtype=torch.complex64)
        state[(0,) * qubits] = 1
        for layer in angles:
            for qubit, angle in enumerate(layer):
                c, s = torch.cos(angle / 2) + 0j, -1j * torch.sin(angle / 2)
                gate = torch.stack([torch.stack([c, s]), torch.stack([s, c])])
                state = torch.moveaxis(torch.tensordot(gate, state, dims=([1], [qubit])), 0, qubit)
            for qubit in range(qubits - 1):
                sign = torch.ones((2,) * qubits)
                sign[(slice(None),) * qubit + (1, 1)] = -1
                state = state * sign
        odds = torch.abs(state) ** 2
        return torch.sum(odds[0]) - torch.sum(odds[1]) + torch.sum(odds[:, 0]) - torch.sum(odds[:, 1])

    return _with_gradient(energy, *tensors(inputs, "angles"))
