"""Matrix products on CUDA's devices, by cuBLASLt: matrices are taken as they lie, batched and strided.

A product that the library does not take (integers, complex numbers, no unit stride) runs on CuPy's arrays. Never run on a device.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nnc.backends.cuda.cublaslt import CublasLt, Problem, Product, Stored, load_library, takes
from nnc.backends.cuda.cupy_arrays import queue as queue_on_cupy
from nnc.backends.products import Axis, Gemm, Matrix, gemm_of, product_of
from nnc.commands.contract import dot
from nnc.commands.rules import cost
from nnc.devices import CUDA
from nnc.graph import Kernel, TensorSpec, add_kernel, reference
from nnc.lower.kernels.references import store
from nnc.lower.plan.stages import Step

_WORKSPACE = 8 << 20  # bytes: for products that are split along their sums; NVIDIA advises 4 MiB, and 32 MiB for sm_90
_LARGE = 1 << 24  # operations of a product that may gain from it
_MOST_ALIGNED = 256  # bytes


def _run(inputs: Sequence[Any], outputs: Sequence[Any], params: Mapping[str, Any]) -> None:
    store(dot, reference[dot](*inputs, **params), outputs[:1])


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
    return _WORKSPACE if cost[dot](*specs, **params) >= _LARGE else 0


def _queue(step: Step, device: Any, precision: str) -> Callable[[Sequence[int], int], None]:
    """The function that queues a `dot`."""
    library: CublasLt | None = device.library(_new_library)
    has_terms = all(view.spec.size for view in (*step.inputs, step.outputs[0]))
    gemm = gemm_of(product_of(step)) if has_terms else None
    if library is None or gemm is None:
        return queue_on_cupy(step, device, precision)
    return _Products(library, gemm, step, precision, queue_on_cupy(step, device, precision))


def _new_library(device: Any) -> CublasLt | None:
    library = load_library()
    return None if library is None else CublasLt(library)


class _Products:
    """The products of a step.

    Args:
        library: computes them.
        gemm: the matrices.
        step: of the program.
        precision: in which products of float32 are computed.
        otherwise: computes the step where the library has no algorithm.
    """

    def __init__(
        self, library: CublasLt, gemm: Gemm, step: Step, precision: str, otherwise: Callable[[Sequence[int], int], None]
    ) -> None:
        self._library, self._otherwise = library, otherwise
        *self._outer, inner = gemm.product.loops or (Axis(1),)
        self._turned, unit = gemm.product.is_turned, gemm.product.dtype.itemsize
        m, n, k = gemm.sizes
        workspace = sum(view.spec.nbytes for view in step.outputs[1:])
        b = _stored(
            gemm.b, k, n, inner.y // unit
        )  # columns stand for rows: the transpose of a product is that of the transposes
        a, c = _stored(gemm.a, m, k, inner.x // unit), _stored(gemm.c, m, n, inner.out // unit)
        self._problem = Problem(gemm.product.dtype, precision, inner.size, b, a, c, workspace)
        self._plans: dict[tuple[int, ...], Product | None] = {}  # by alignments

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Queues the products.

        Args:
            addresses: of the operands, the result and the workspace.
            stream: the handle of a stream.
        """
        x, y, out, *workspace = addresses
        if self._turned:
            x, y = y, x
        for by_x, by_y, by_out in self._iterations():
            given = (y + by_y, x + by_x, out + by_out)
            alignments = tuple(math.gcd(address, _MOST_ALIGNED) for address in given)
            if alignments not in self._plans:
                self._plans[alignments] = self._library.plan(self._problem, alignments)
            product = self._plans[alignments]
            if product is None:
                self._otherwise(addresses[:3], stream)  # computes all
                return
            self._library.run(product, given, workspace[0] if workspace else 0, stream)

    def _iterations(self) -> Iterator[tuple[int, int, int]]:
        """The distances of x, y and out in the loops around the batches."""
        for place in itertools.product(*(range(axis.size) for axis in self._outer)):
            pairs = list(zip(place, self._outer, strict=True))
            yield sum(i * a.x for i, a in pairs), sum(i * a.y for i, a in pairs), sum(i * a.out for i, a in pairs)


def _stored(matrix: Matrix, rows: int, columns: int, batch: int) -> Stored:
    """A row-major matrix as the columns of its transpose."""
    lies = (rows, columns) if matrix.transposed else (columns, rows)
    return Stored(*lies, max(matrix.leading, lies[0]), batch, matrix.transposed)


add_kernel(
    dot,
    Kernel(
        "cuBLASLt", _run, lambda specs, params: takes(specs[0].dtype), workspace=_workspace, device=CUDA, queue=_queue
    ),
)
