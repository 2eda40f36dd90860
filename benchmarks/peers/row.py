"""Rows of the comparison: data that every worker process can read without any framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]
Inputs = dict[str, Any]  # arrays by name; "weights" holds a network's arrays, under PyTorch's names
Step = Callable[[], Any]  # runs once, waits for the end, returns an array or a sequence of them


@dataclass(frozen=True)
class Case:
    """A step whose results have another layout than the other frameworks' results, and the function that turns them."""

    step: Step
    read: Callable[[Any], Any]


TORCH = ("torch", "torch.compile")
COMPILERS = ("nnc", "jax", *TORCH)


@dataclass(frozen=True)
class Work:
    """The least work of any program: float32 operations, bytes to and from memory, multiplications that wait for each other."""

    flops: float = 0
    nbytes: float = 0
    chain: float = 0

    def floor(self, machine: Machine) -> tuple[float, str]:
        """The least seconds on this machine, and the resource that bounds them."""
        bounds = {
            "flops": self.flops / machine.flops,
            "bytes": self.nbytes / machine.bandwidth,
            "chain": self.chain * machine.latency,
        }
        bound = max(bounds, key=lambda name: bounds[name])
        return bounds[bound], bound


@dataclass(frozen=True)
class Machine:
    """The measured speeds: operations per second, bytes per second, seconds from one dependent multiplication to the next."""

    flops: float
    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Row:
    """A program of which each framework has its version.

    `case` names the module and the function in `with_<framework>` that makes the step from the inputs and `settings`. Rows of one
    `group` share processes, so their first calls and their memory say little: only rows alone in their group report them.
    """

    name: str
    title: str
    case: str
    inputs: Callable[[], Inputs]
    work: Work
    group: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    frameworks: tuple[str, ...] = COMPILERS
    calls: int = 1  # how many calls a step makes; figures are for one
    rtol: float = 1e-4  # how far results may lie apart, relative to the largest of them
    trains: bool = False
    parts: Mapping[str, int] = field(
        default_factory=dict
    )  # frameworks that run one n-th of the iterations, and are scaled


def without_signs(x: Any) -> NDArray:
    """Absolute values of a factor, whose vectors may point either way."""
    return np.abs(np.asarray(x))


def draw(seed: int = 0) -> np.random.Generator:
    """The numbers of a row: the same in each process."""
    return np.random.default_rng(seed)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> NDArray:
    """Normal float32 numbers, made without a float64 copy."""
    values = rng.standard_normal(shape, np.float32)
    values *= np.float32(scale)
    return values
