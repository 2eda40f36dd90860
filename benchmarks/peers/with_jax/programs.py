"""Loops, the likelihood, the chain and sorting in JAX."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.peers.row import Inputs, Step


def _calls(function: Any, *arguments: Any) -> Step:
    """Calls that wait for their results."""
    return lambda: jax.block_until_ready(function(*arguments))


def rk4(inputs: Inputs, *, steps: int) -> Step:
    """Classical Runge–Kutta for y' = tanh(A y) - y."""

    @jax.jit
    def integrate(matrix: Any, start: Any, dt: Any) -> Any:
        def slope(y: Any) -> Any:
            return jnp.tanh(matrix @ y) - y

        def advance(_: Any, y: Any) -> Any:
            k1 = slope(y)
            k2 = slope(y + dt / 2 * k1)
            k3 = slope(y + dt / 2 * k2)
            k4 = slope(y + dt * k3)
            return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        return jax.lax.fori_loop(0, steps, advance, start)

    return _calls(integrate, *(jnp.asarray(inputs[name]) for name in ("matrix", "start", "dt")))


def rounded_while(inputs: Inputs, *, iterations: int) -> Step:
    """The loop below, the product rounded before it is added. XLA joins them across barriers, too, where a processor can."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_max_isa=AVX"  # has no fused multiply-add; read with the first array
    return contracted_while(inputs, iterations=iterations)


def contracted_while(inputs: Inputs, *, iterations: int) -> Step:
    """x = factor · x + shift, which XLA rounds once, until the iterations are over or x is large."""

    @jax.jit
    def loop(iterations: Any, start: Any, factor: Any, shift: Any) -> Any:
        def goes_on(state: Any) -> Any:
            i, x = state
            return (i < iterations) & (x < 1e9)

        return jax.lax.while_loop(goes_on, lambda state: (state[0] + 1, factor * state[1] + shift), (0, start))[1]

    return _calls(loop, jnp.asarray(iterations), *(jnp.asarray(inputs[name]) for name in ("start", "factor", "shift")))


def while_jacobian(inputs: Inputs, *, steps: int) -> Step:
    """The Jacobian of Euler's method for y' = tanh(A y) - y, as many steps as are asked for, with regard to the start."""

    def euler(matrix: Any, start: Any, dt: Any, steps: Any) -> Any:
        advance = lambda y: y + dt * (jnp.tanh(matrix @ y) - y)
        return jax.lax.while_loop(lambda c: c[0] < steps, lambda c: (c[0] + 1, advance(c[1])), (0, start))[1]

    arguments = [jnp.asarray(inputs[name]) for name in ("matrix", "start", "dt")]
    return _calls(jax.jit(jax.jacfwd(euler, 1)), *arguments, jnp.asarray(steps))


def while_gradient(inputs: Inputs, *, steps: int) -> Step:
    """The gradient of the squares' sum behind it: of a loop of known length, since JAX has no reverse mode through others."""

    def loss(matrix: Any, start: Any, dt: Any) -> Any:
        return jnp.sum(jax.lax.fori_loop(0, steps, lambda _, y: y + dt * (jnp.tanh(matrix @ y) - y), start) ** 2)

    return _calls(jax.jit(jax.grad(loss, (0, 1))), *(jnp.asarray(inputs[name]) for name in ("matrix", "start", "dt")))


def likelihood(inputs: Inputs) -> Step:
    """The negative log likelihood of a Gaussian process, and its gradient."""
    jax.config.update("jax_enable_x64", True)

    def loss(logs: Any, points: Any, values: Any) -> Any:
        scaled = points / jnp.exp(logs[:4])
        squares = jnp.sum(scaled * scaled, axis=1)
        distances = squares[:, None] + squares[None, :] - 2 * scaled @ scaled.T
        kernel = jnp.exp(2 * logs[4] - 0.5 * distances) + jnp.exp(2 * logs[5]) * jnp.eye(len(values))
        factor = jnp.linalg.cholesky(kernel)
        white = jax.scipy.linalg.solve_triangular(factor, values, lower=True)
        return 0.5 * white @ white + jnp.sum(jnp.log(jnp.diagonal(factor)))

    arguments = [jnp.asarray(inputs[name]) for name in ("logs", "points", "values")]
    return _calls(jax.jit(jax.value_and_grad(loss)), *arguments)


def chain(inputs: Inputs) -> Step:
    """softmax(gelu(layer norm)) against a target, and the gradients of all that is trained."""

    def loss(x: Any, scale: Any, bias: Any, target: Any) -> Any:
        mean = jnp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
        normal = centred * jax.lax.rsqrt(variance + 1e-5) * scale + bias
        return jnp.sum(jax.nn.softmax(jax.nn.gelu(normal)) * target)

    compiled = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
    arguments = [jnp.asarray(inputs[name]) for name in ("x", "scale", "bias", "target")]

    def step() -> Any:
        value, gradients = jax.block_until_ready(compiled(*arguments))
        return value, *gradients

    return step


def sort(inputs: Inputs) -> Step:
    """The numbers in order."""
    return _calls(jax.jit(jnp.sort), jnp.asarray(inputs["x"]))


def argsort(inputs: Inputs) -> Step:
    """The places of the numbers in order."""
    return _calls(jax.jit(jnp.argsort), jnp.asarray(inputs["x"]))
