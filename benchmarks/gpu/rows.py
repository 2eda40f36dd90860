"""Programs of the comparison on a graphics processor: each is written once for each framework, on the same NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]
Make = Callable[[Any], Callable[..., Any]]  # from the modules of a framework to the function of arrays


@dataclass(frozen=True)
class Row:
    """A program.

    Attributes:
        name: of the row.
        shapes: of its arrays.
        small: shapes that are checked against the CPU.
        make: the function of each framework: "nnc" gets `nnc.numpy` and `nnc.nn`, "torch" the module torch, "jax" the modules
            `jax.numpy` and `jax`.
        nbytes: bytes that any program moves, for these shapes.
        flops: operations of its matrix products.
        dtype: of its arrays.
        precision: of its products.
        rtol: how far results may lie apart, relative to the largest of them.
        quick: whether the quick run has it.
        compiled: whether the function is compiled; else its commands run one by one.
    """

    name: str
    shapes: Sequence[tuple[int, ...]]
    small: Sequence[tuple[int, ...]]
    make: Mapping[str, Make]
    nbytes: float
    flops: float = 0
    dtype: str = "float32"
    precision: str = "float32"
    rtol: float = 1e-5
    quick: bool = True
    compiled: bool = True

    def arrays(self, small: bool) -> list[NDArray]:
        """The arrays in float32, drawn anew."""
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape, np.float32) for shape in (self.small if small else self.shapes)]


def _chain(tanh: Any, exp: Any) -> Callable[..., Any]:
    return lambda x, y: tanh(x) * y + exp(-x * x) * (y - 1)


def _norm_gelu(mean: Any, sqrt: Any, tanh: Any) -> Callable[..., Any]:
    """Layer normalisation and GELU, in float32 within a kernel."""

    def run(x: Any) -> Any:
        centred = x - mean(x)
        y = centred / sqrt(mean(centred * centred) + 1e-5)
        return 0.5 * y * (1 + tanh(0.7978845608028654 * (y + 0.044715 * y * y * y)))

    return run


def _mlp_loss(tanh: Any, mean: Any) -> Callable[..., Any]:
    def loss(w1: Any, w2: Any, w3: Any, x: Any, y: Any) -> Any:
        difference = tanh(tanh(x @ (w1 * 0.03)) @ (w2 * 0.03)) @ (w3 * 0.03) - y
        return mean(difference * difference)

    return loss


def _nnc_step(loss: Callable[..., Any], nnc: Any) -> Callable[..., Any]:
    def step(w1: Any, w2: Any, w3: Any, x: Any, y: Any) -> Any:
        gradients = nnc.grad(loss, argnums=(0, 1, 2))(w1, w2, w3, x, y)
        return tuple(w - 0.1 * g for w, g in zip((w1, w2, w3), gradients, strict=True))

    return step


def _torch_step(loss: Callable[..., Any], torch: Any) -> Callable[..., Any]:
    def step(*arrays: Any) -> Any:
        weights = [w.detach().requires_grad_() for w in arrays[:3]]
        gradients = torch.autograd.grad(loss(*weights, *arrays[3:]), weights)
        return tuple(w.detach() - 0.1 * g for w, g in zip(weights, gradients, strict=True))

    return step


def _frameworks(nnc: Make, torch: Make, jax: Make) -> Mapping[str, Make]:
    return MappingProxyType({"nnc": nnc, "torch": torch, "jax": jax})


_CHAIN = _frameworks(
    lambda m: _chain(m.numpy.tanh, m.numpy.exp), lambda m: _chain(m.tanh, m.exp), lambda m: _chain(m.numpy.tanh, m.numpy.exp)
)  # fmt: skip
_SOFTMAX = _frameworks(
    lambda m: lambda x: m.nn.softmax(x, axis=-1), lambda m: lambda x: m.softmax(x, -1), lambda m: lambda x: m.nn.softmax(x, -1)
)  # fmt: skip
_NORM = _frameworks(
    lambda m: _norm_gelu(lambda x: m.numpy.mean(x, axis=-1, keepdims=True), m.numpy.sqrt, m.numpy.tanh),
    lambda m: _norm_gelu(lambda x: m.mean(x, -1, keepdim=True), m.sqrt, m.tanh),
    lambda m: _norm_gelu(lambda x: m.numpy.mean(x, -1, keepdims=True), m.numpy.sqrt, m.numpy.tanh),
)
_SUMS = _frameworks(
    lambda m: lambda x: m.numpy.sum(x, axis=0), lambda m: lambda x: x.sum(0), lambda m: lambda x: m.numpy.sum(x, 0)
)
_TURN = _frameworks(
    lambda m: lambda x, y: x.T + y, lambda m: lambda x, y: (x.T + y).contiguous(), lambda m: lambda x, y: x.T + y
)
_PRODUCT = _frameworks(lambda m: lambda x, y: x @ y, lambda m: lambda x, y: x @ y, lambda m: lambda x, y: x @ y)
_MLP = _frameworks(
    lambda m: _nnc_step(_mlp_loss(m.numpy.tanh, m.numpy.mean), m),
    lambda m: _torch_step(_mlp_loss(m.tanh, m.mean), m),
    lambda m: _nnc_step(_mlp_loss(m.numpy.tanh, m.numpy.mean), m),
)
_ADD = _frameworks(lambda m: lambda x: x + 1, lambda m: lambda x: x + 1, lambda m: lambda x: x + 1)

_M, _SMALL = 1 << 20, (96, 264)
_SQUARE = ((4096, 4096), (4096, 4096))
_LAYERS = ((784, 1024), (1024, 1024), (1024, 10), (256, 784), (256, 10))
_SMALL_LAYERS = ((20, 24), (24, 24), (24, 10), (8, 20), (8, 10))
_MLP_BYTES = 8.0 * (784 + 1024 + 10) * 1024
_MLP_FLOPS = 6.0 * 256 * (784 * 1024 + 1024 * 1024 + 1024 * 10)

ROWS = (
    Row("copy", ((64 * _M,),), ((5000,),), _ADD, 8.0 * 64 * _M),
    Row("chain", ((64 * _M,), (64 * _M,)), ((5000,), (5000,)), _CHAIN, 12.0 * 64 * _M, rtol=1e-5),
    Row("chain-bf16", ((128 * _M,), (128 * _M,)), ((5000,), (5000,)), _CHAIN, 6.0 * 128 * _M, dtype="bfloat16", rtol=2e-2),
    Row("softmax", ((16384, 4096),), (_SMALL,), _SOFTMAX, 8.0 * 16384 * 4096),
    Row("norm-gelu", ((16384, 4096),), (_SMALL,), _NORM, 8.0 * 16384 * 4096, quick=False),
    Row("norm-gelu-bf16", ((32768, 4096),), (_SMALL,), _NORM, 4.0 * 32768 * 4096, dtype="bfloat16", rtol=3e-2),
    Row("columns", ((16384, 4096),), (_SMALL,), _SUMS, 4.0 * 16384 * 4096, rtol=1e-4),
    Row("transpose", ((8192, 8192), (8192, 8192)), ((96, 264), (264, 96)), _TURN, 12.0 * 8192 * 8192, quick=False),
    Row("matmul", _SQUARE, ((96, 64), (64, 80)), _PRODUCT, 12.0 * 4096**2, 2.0 * 4096**3, rtol=1e-4, quick=False),
    Row("matmul-tf32", _SQUARE, ((96, 64), (64, 80)), _PRODUCT, 12.0 * 4096**2, 2.0 * 4096**3, precision="tf32", rtol=5e-3),
    Row("matmul-bf16", _SQUARE, ((96, 64), (64, 80)), _PRODUCT, 6.0 * 4096**2, 2.0 * 4096**3, dtype="bfloat16", rtol=3e-2),
    Row("mlp", _LAYERS, _SMALL_LAYERS, _MLP, _MLP_BYTES, _MLP_FLOPS, rtol=1e-4),
    Row("mlp-tf32", _LAYERS, _SMALL_LAYERS, _MLP, _MLP_BYTES, _MLP_FLOPS, precision="tf32", rtol=5e-3, quick=False),
    Row("eager", ((1000,),), ((100,),), _ADD, 8000.0, compiled=False),
    Row("call", ((1000,),), ((100,),), _ADD, 8000.0),
)  # fmt: skip
