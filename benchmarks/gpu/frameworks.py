"""The frameworks of the comparison: how each sends arrays, compiles a function, and waits."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.rows import NDArray, Row


@dataclass(frozen=True)
class Prepared:
    """A row, ready to be timed.

    Attributes:
        call: queues the function on its arrays, and returns the result.
        wait: waits for a result.
        read: turns a result into arrays of NumPy in float32.
    """

    call: Callable[[], Any]
    wait: Callable[[Any], None]
    read: Callable[[Any], list[NDArray]]


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def prepare_nnc(row: Row, arrays: Sequence[NDArray], device: str) -> Prepared:
    """The row by nnc.

    Args:
        row: the program.
        arrays: in float32.
        device: where it runs.
    """
    nnc = importlib.import_module("nnc")
    given = nnc.device_put([nnc.numpy.asarray(x, row.dtype) for x in arrays], device)
    function = row.make["nnc"](nnc)
    if row.compiled:
        function = nnc.compile(function, device=device, precision=row.precision)
    return Prepared(
        lambda: function(*given), nnc.block_until_ready, lambda out: [_wide(np.asarray(x)) for x in _listed(out)]
    )


def prepare_torch(row: Row, arrays: Sequence[NDArray], device: str) -> Prepared:
    """The row by PyTorch, compiled with all its tuning.

    Args:
        row: the program.
        arrays: in float32.
        device: where it runs.
    """
    torch = importlib.import_module("torch")
    torch.set_float32_matmul_precision("high" if row.precision == "tf32" else "highest")
    given = [torch.from_numpy(x).to(device, getattr(torch, row.dtype)) for x in arrays]
    function = row.make["torch"](torch)
    if row.compiled:
        function = torch.compile(function, mode="max-autotune")

    def wait(result: Any) -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    return Prepared(
        lambda: function(*given), wait, lambda out: [x.detach().float().cpu().numpy() for x in _listed(out)]
    )


def prepare_jax(row: Row, arrays: Sequence[NDArray], device: str) -> Prepared:
    """The row by JAX.

    Args:
        row: the program.
        arrays: in float32.
        device: where it runs: "cpu", or JAX's own choice.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the frameworks share one device
    jax = importlib.import_module("jax")
    place = jax.devices("cpu" if device == "cpu" else "gpu")[0]
    given = [jax.device_put(jax.numpy.asarray(x, row.dtype), place) for x in arrays]
    function = row.make["jax"](jax)
    if row.compiled:
        function = jax.jit(function)

    def call() -> Any:
        with jax.default_matmul_precision("tensorfloat32" if row.precision == "tf32" else "float32"):
            return function(*given)

    return Prepared(call, jax.block_until_ready, lambda out: [_wide(np.asarray(x)) for x in _listed(out)])


def _wide(x: NDArray) -> NDArray:
    return x.astype(np.float32)


FRAMEWORKS: tuple[tuple[str, Callable[[Row, Sequence[NDArray], str], Prepared]], ...] = (
    ("nnc", prepare_nnc),
    ("torch", prepare_torch),
    ("jax", prepare_jax),
)
