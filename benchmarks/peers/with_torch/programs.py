"""Loops, the likelihood, the chain and sorting in PyTorch. It has no compiled loops: one round is compiled, Python goes around."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.peers.row import Inputs, Step
from benchmarks.peers.with_torch.wrap import Wrap, tensors


def rk4(inputs: Inputs, wrap: Wrap, *, steps: int) -> Step:
    """Classical Runge–Kutta for y' = tanh(A y) - y."""

    def slope(matrix: Any, y: Any) -> Any:
        return torch.tanh(matrix @ y) - y

    @wrap
    def advance(matrix: Any, y: Any, dt: Any) -> Any:
        k1 = slope(matrix, y)
        k2 = slope(matrix, y + dt / 2 * k1)
        k3 = slope(matrix, y + dt / 2 * k2)
        k4 = slope(matrix, y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    matrix, start, dt = tensors(inputs, "matrix", "start", "dt")

    def step() -> Any:
        y = start
        with torch.inference_mode():
            for _ in range(steps):
                y = advance(matrix, y, dt)
        return y

    return step


def rounded_while(inputs: Inputs, wrap: Wrap, *, iterations: int) -> Step:
    """x = factor · x + shift until the iterations are over or x is large."""

    @wrap
    def advance(x: Any, factor: Any, shift: Any) -> Any:
        x = factor * x + shift
        return x, x < 1e9

    start, factor, shift = tensors(inputs, "start", "factor", "shift")

    def step() -> Any:
        x, i, goes_on = start, 0, torch.tensor(True)
        with torch.inference_mode():
            while i < iterations and goes_on:
                x, goes_on = advance(x, factor, shift)
                i += 1
        return x

    return step


def likelihood(inputs: Inputs, wrap: Wrap) -> Step:
    """The negative log likelihood of a Gaussian process, and its gradient."""

    @wrap
    def loss(logs: Any, points: Any, values: Any) -> Any:
        scaled = points / torch.exp(logs[:4])
        squares = torch.sum(scaled * scaled, dim=1)
        distances = squares[:, None] + squares[None, :] - 2 * scaled @ scaled.T
        kernel = torch.exp(2 * logs[4] - 0.5 * distances)
        kernel = kernel + torch.exp(2 * logs[5]) * torch.eye(len(values), dtype=kernel.dtype)
        factor = torch.linalg.cholesky(kernel)
        white = torch.linalg.solve_triangular(factor, values[:, None], upper=False)[:, 0]
        return 0.5 * white @ white + torch.sum(torch.log(torch.diagonal(factor)))

    logs, points, values = tensors(inputs, "logs", "points", "values")
    logs.requires_grad_()

    def step() -> Any:
        value = loss(logs, points, values)
        return value.detach(), *torch.autograd.grad(value, (logs,))

    return step


def chain(inputs: Inputs, wrap: Wrap) -> Step:
    """softmax(gelu(layer norm)) against a target, and the gradients of all that is trained."""

    @wrap
    def loss(x: Any, scale: Any, bias: Any, target: Any) -> Any:
        normal = functional.layer_norm(x, x.shape[-1:], scale, bias)
        return torch.sum(torch.softmax(functional.gelu(normal, approximate="tanh"), -1) * target)

    x, scale, bias, target = tensors(inputs, "x", "scale", "bias", "target")
    trained = [part.requires_grad_() for part in (x, scale, bias)]

    def step() -> Any:
        value = loss(*trained, target)
        return value.detach(), *torch.autograd.grad(value, trained)

    return step


def sort(inputs: Inputs, wrap: Wrap) -> Step:
    """The numbers in order."""
    (x,), function = tensors(inputs, "x"), wrap(lambda x: torch.sort(x).values)
    return lambda: function(x)


def argsort(inputs: Inputs, wrap: Wrap) -> Step:
    """The places of the numbers in order."""
    (x,), function = tensors(inputs, "x"), wrap(torch.argsort)
    return lambda: function(x)
