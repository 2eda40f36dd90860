"""Fourier transforms and complex numbers in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.peers.row import Inputs, Step


def _calls(function: Any, *arguments: Any) -> Step:
    compiled, placed = jax.jit(function), [jnp.asarray(x) for x in arguments]
    return lambda: jax.block_until_ready(compiled(*placed))


def rfft(inputs: Inputs) -> Step:
    """Transforms of rows of real numbers."""
    return _calls(jnp.fft.rfft, inputs["x"])


def fft2(inputs: Inputs) -> Step:
    """The transform of an image."""
    return _calls(jnp.fft.fft2, inputs["x"])


def tanh(inputs: Inputs) -> Step:
    """A function of complex numbers."""
    return _calls(jnp.tanh, inputs["x"])


def fluid(inputs: Inputs, *, steps: int) -> Step:
    """The energy of a fluid some steps later, and its gradient with regard to the vorticity at the start."""

    def energy(w: Any, kx: Any, ky: Any, square: Any) -> Any:
        def advance(_: Any, spectrum: Any) -> Any:
            flow = spectrum / square
            u, v = jnp.fft.irfft2(1j * ky * flow), jnp.fft.irfft2(-1j * kx * flow)
            dx, dy = jnp.fft.irfft2(1j * kx * spectrum), jnp.fft.irfft2(1j * ky * spectrum)
            moved = spectrum - 1e-3 * jnp.fft.rfft2(u * dx + v * dy)
            return moved / (1 + 1e-4 * square)

        last = jax.lax.fori_loop(0, steps, advance, jnp.fft.rfft2(w))
        return jnp.sum(jnp.fft.irfft2(last) ** 2)

    return _calls(jax.value_and_grad(energy), *(inputs[name] for name in ("w", "kx", "ky", "square")))


def circuit(inputs: Inputs, *, qubits: int) -> Step:
    """The energy of two neighbouring qubits behind rotations and controlled signs, and its gradient."""

    def energy(angles: Any) -> Any:
        state = jnp.zeros(2**qubits, jnp.complex64).at[0].set(1).reshape((2,) * qubits)
        for layer in angles:
            for qubit, angle in enumerate(layer):
                c, s = jnp.cos(angle / 2) + 0j, -1j * jnp.sin(angle / 2)
                gate = jnp.stack([jnp.stack([c, s]), jnp.stack([s, c])])
                state = jnp.moveaxis(jnp.tensordot(gate, state, axes=((1,), (qubit,))), 0, qubit)
            for qubit in range(qubits - 1):
                both = (slice(None),) * qubit + (1, 1)
                state = state.at[both].multiply(-1)
        odds = jnp.abs(state) ** 2
        return jnp.sum(odds[0]) - jnp.sum(odds[1]) + jnp.sum(odds[:, 0]) - jnp.sum(odds[:, 1])

    return _calls(jax.value_and_grad(energy), inputs["angles"])
