"""Times a call of a new size, for nnc, JAX and torch.compile: python -m benchmarks.sizes [--quick].

Each framework runs the training step of a small multilayer perceptron on batches of sizes that it has not met before, one process
after the other. A line has the first three calls, and the median of the later ones, each of another size.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

WIDTHS = (64, 256, 256, 10)
FRAMEWORKS = ("nnc", "jax", "torch")
SIZES = (48, 80, 112, 96, 67, 75, 88, 105, 121, 100, 59, 90)
QUICK = SIZES[:6]


def _weights() -> list[np.ndarray[Any, Any]]:
    draws = np.random.default_rng(0)
    return [draws.normal(0, 0.05, pair).astype(np.float32) for pair in pairwise(WIDTHS)]


def _nnc() -> Callable[[np.ndarray[Any, Any]], Any]:
    nnc: Any = import_module("nnc")
    nnp, nn = nnc.numpy, nnc.nn

    warnings.simplefilter("ignore", nnc.errors.RetraceWarning)

    def loss(weights: Any, x: Any) -> Any:
        for w in weights[:-1]:
            x = nn.relu(x @ w)
        return -nnp.mean(nn.log_softmax(x @ weights[-1])[:, 0])

    step = nnc.compile(lambda weights, x: nnc.value_and_grad(loss)(weights, x))
    weights = list(map(nnp.asarray, _weights()))
    return lambda x: float(step(weights, x)[0])


def _jax() -> Callable[[np.ndarray[Any, Any]], Any]:
    jax: Any = import_module("jax")
    jnp = jax.numpy

    def loss(weights: Any, x: Any) -> Any:
        for w in weights[:-1]:
            x = jax.nn.relu(x @ w)
        return -jnp.mean(jax.nn.log_softmax(x @ weights[-1])[:, 0])

    step = jax.jit(jax.value_and_grad(loss))
    weights = list(map(jnp.asarray, _weights()))
    return lambda x: float(step(weights, x)[0])


def _torch() -> Callable[[np.ndarray[Any, Any]], Any]:
    torch: Any = import_module("torch")

    weights = [torch.tensor(w, requires_grad=True) for w in _weights()]

    @torch.compile
    def loss(x: Any) -> Any:
        for w in weights[:-1]:
            x = torch.relu(x @ w)
        return -torch.log_softmax(x @ weights[-1], -1)[:, 0].mean()

    def step(x: np.ndarray[Any, Any]) -> float:
        value = loss(torch.from_numpy(x))
        value.backward()
        return float(value.detach())

    return step


def measure(framework: str, sizes: tuple[int, ...]) -> str:
    """Returns the line of a framework."""
    step = {"nnc": _nnc, "jax": _jax, "torch": _torch}[framework]()
    seconds = []
    for n in sizes:
        x = np.random.default_rng(n).normal(size=(n, WIDTHS[0])).astype(np.float32)
        start = time.perf_counter()
        step(x)
        seconds.append(1e3 * (time.perf_counter() - start))
    later = statistics.median(seconds[3:])
    return f"{framework:6} first {seconds[0]:8.1f}   second {seconds[1]:8.1f}   third {seconds[2]:8.1f}   later {later:8.1f} ms"


def main() -> None:
    """Reads the command line and prints a line for each framework that is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--framework", choices=FRAMEWORKS, help="one of them, in this process")
    given = parser.parse_args()
    if given.framework:
        print(measure(given.framework, QUICK if given.quick else SIZES), flush=True)
        return
    for framework in FRAMEWORKS:
        command = [sys.executable, "-m", "benchmarks.sizes", "--framework", framework, *(["--quick"] * given.quick)]
        found = subprocess.run(command, check=False, capture_output=True, text=True)
        print(found.stdout.strip() or f"{framework:6} {found.stderr.strip().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
