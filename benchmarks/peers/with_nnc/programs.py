"""Loops, the likelihood, the chain and sorting in nnc."""

from __future__ import annotations

from typing import Any

import nnc
import nnc.numpy as nnp
from benchmarks.peers.row import Inputs, Step
from nnc import nn


def rk4(inputs: Inputs, *, steps: int) -> Step:
    """Classical Runge–Kutta for y' = tanh(A y) - y."""

    @nnc.compile
    def integrate(matrix: Any, start: Any, dt: Any) -> Any:
        def slope(y: Any) -> Any:
            return nnp.tanh(matrix @ y) - y

        def advance(_: Any, y: Any) -> Any:
            k1 = slope(y)
            k2 = slope(y + dt / 2 * k1)
            k3 = slope(y + dt / 2 * k2)
            k4 = slope(y + dt * k3)
            return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        return nnc.fori_loop(0, steps, advance, start)

    arguments = [nnc.asarray(inputs[name]) for name in ("matrix", "start", "dt")]
    return lambda: integrate(*arguments)


def contracted_while(inputs: Inputs, *, iterations: int) -> Step:
    """x = factor · x + shift, rounded once, until the iterations are over or x is large."""
    return _scalar_while(inputs, iterations, contract=True)


def rounded_while(inputs: Inputs, *, iterations: int) -> Step:
    """The same loop, the product rounded before it is added."""
    return _scalar_while(inputs, iterations, contract=False)


def _scalar_while(inputs: Inputs, iterations: int, *, contract: bool) -> Step:
    @nnc.compile(contract=contract)
    def loop(iterations: Any, start: Any, factor: Any, shift: Any) -> Any:
        def goes_on(state: Any) -> Any:
            i, x = state
            return (i < iterations) & (x < 1e9)

        return nnc.while_loop(goes_on, lambda state: (state[0] + 1, factor * state[1] + shift), (0, start))[1]

    count = nnc.asarray(iterations)
    arguments = [nnc.asarray(inputs[name]) for name in ("start", "factor", "shift")]
    return lambda: loop(count, *arguments)


def _euler(matrix: Any, start: Any, dt: Any, steps: Any) -> Any:
    """Euler's method for y' = tanh(A y) - y, as many steps as are asked for."""
    advance = lambda y: y + dt * (nnp.tanh(matrix @ y) - y)
    return nnc.while_loop(lambda c: c[0] < steps, lambda c: (c[0] + 1, advance(c[1])), (0, start))[1]


def while_jacobian(inputs: Inputs, *, steps: int) -> Step:
    """Its Jacobian with regard to the start."""
    compiled, count = nnc.compile(nnc.jacfwd(_euler, 1)), nnc.asarray(steps)
    arguments = [nnc.asarray(inputs[name]) for name in ("matrix", "start", "dt")]
    return lambda: compiled(*arguments, count)


def while_gradient(inputs: Inputs, *, steps: int) -> Step:
    """The gradient of the squares' sum behind it, with regard to the matrix and the start."""
    compiled = nnc.compile(nnc.grad(lambda *xs: nnp.sum(_euler(*xs) ** 2), (0, 1)))
    arguments, count = [nnc.asarray(inputs[name]) for name in ("matrix", "start", "dt")], nnc.asarray(steps)
    return lambda: compiled(*arguments, count)


def likelihood(inputs: Inputs) -> Step:
    """The negative log likelihood of a Gaussian process, and its gradient."""

    def loss(logs: Any, points: Any, values: Any) -> Any:
        scaled = points / nnp.exp(logs[:4])
        squares = nnp.sum(scaled * scaled, axis=1)
        distances = squares[:, None] + squares[None, :] - 2 * scaled @ scaled.T
        kernel = nnp.exp(2 * logs[4] - 0.5 * distances)
        kernel = kernel + nnp.exp(2 * logs[5]) * nnp.eye(len(values), dtype=kernel.dtype)
        factor = nnp.linalg.cholesky(kernel)
        white = nnp.linalg.solve_triangular(factor, values, lower=True)
        return 0.5 * white @ white + nnp.sum(nnp.log(nnp.diagonal(factor)))

    compiled = nnc.compile(nnc.value_and_grad(loss))
    arguments = [nnc.asarray(inputs[name]) for name in ("logs", "points", "values")]
    return lambda: compiled(*arguments)


def chain(inputs: Inputs) -> Step:
    """softmax(gelu(layer norm)) against a target, and the gradients of all that is trained."""

    def loss(x: Any, scale: Any, bias: Any, target: Any) -> Any:
        return nnp.sum(nn.softmax(nn.gelu(nn.layer_norm(x, scale, bias))) * target)

    compiled = nnc.compile(nnc.value_and_grad(loss, argnums=(0, 1, 2)))
    arguments = [nnc.asarray(inputs[name]) for name in ("x", "scale", "bias", "target")]

    def step() -> Any:
        value, gradients = compiled(*arguments)
        return value, *gradients

    return step


def sort(inputs: Inputs) -> Step:
    """The numbers in order."""
    compiled, x = nnc.compile(nnp.sort), nnc.asarray(inputs["x"])
    return lambda: compiled(x)


def argsort(inputs: Inputs) -> Step:
    """The places of the numbers in order."""
    compiled, x = nnc.compile(nnp.argsort), nnc.asarray(inputs["x"])
    return lambda: compiled(x)
