"""Matrix products on CUDA's devices, by cuBLASLt: matrices are taken as they lie, batched and strided, with its epilogues.

A product that the library does not take (integers, complex numbers, no unit stride) runs on CuPy's arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from nnc.backends.cuda.libraries.cublaslt import Algorithms, CublasLt, LtProblem, LtProduct, Stored, load_library, takes
from nnc.backends.cuda.libraries.cupy_arrays import queue as queue_on_cupy
from nnc.backends.cuda.libraries.cupy_arrays import queue_function
from nnc.backends.numpy_ref import run_by_graph
from nnc.backends.products import Axis, Gemm, Matrix, gemm_of, make_product
from nnc.base import dtypes
from nnc.base.records import record
from nnc.base.target import Target
from nnc.commands.contract import dot
from nnc.device import CUDA
from nnc.device.cuda import LibraryCall
from nnc.errors import InternalError
from nnc.graph import Attribute, Graph, Kernel, Node, Symbol, TensorSpec, add_kernel, reference
from nnc.graph.kernels import KernelFactory
from nnc.graph.registry import commutes, cost
from nnc.lower.kernels.domain import UNIT, is_view
from nnc.lower.kernels.epilogue import Epilogue
from nnc.lower.kernels.references import store
from nnc.lower.plan.stages import Step, Strides, View

BACKEND = "cuBLASLt"

_WORKSPACE = 8 << 20  # bytes: for products that are split along their sums; NVIDIA advises 4 MiB, and 32 MiB for sm_90
_LARGE = 1 << 24  # operations of a product that may gain from it
_MOST_ALIGNED = 256  # bytes

Queue = Callable[[Sequence[int], int], None]


def _run(inputs: Sequence[Any], outputs: Sequence[Any], params: Mapping[str, Any]) -> None:
    store(dot, reference[dot](*inputs, **params), outputs[:1])


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return takes(specs[0].dtype) and load_library() is not None


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
    return _WORKSPACE if cost[dot](*specs, **params) >= _LARGE else 0


def _queue(step: Step, device: Any, precision: str) -> Queue:
    """Returns the function that queues a `dot`."""
    otherwise = queue_on_cupy(step, device, precision)
    gemm = _gemm_of(step.params, step.inputs, step.outputs[0], ())
    algorithms: Algorithms | None = device.library(_new_algorithms)
    if algorithms is None or gemm is None:
        return otherwise
    return _Products(algorithms, gemm, _workspace_of(step), precision, otherwise)


def _new_algorithms(device: Any) -> Algorithms | None:
    library = load_library()
    return None if library is None else Algorithms(device, CublasLt(library))


def _workspace_of(step: Step) -> int:
    return sum(view.spec.nbytes for view in step.outputs[1:])


@record
class _ProductSum:
    """Products of matrices that are added up: the sum of a `dot` over axes that lie unevenly.

    Attributes:
        gemm: the matrices of the first term.
        more: the axes of further terms.
    """

    gemm: Gemm
    more: tuple[Axis, ...]


def _gemm_of(
    params: Mapping[str, Any], operands: Sequence[View], out: View, more: Sequence[Strides]
) -> _ProductSum | None:  # fmt: skip
    """The matrices of a `dot`; None where the library does not take them.

    Args:
        more: the strides of other tensors along the axes of the result.
    """
    left, right = operands[:2]
    if not all(view.spec.size for view in (left, right, out)):
        return None
    product = make_product(params, left, right, (out.strides, *more))
    *outer, inner = product.depth
    if outer and (more or product.dtype.itemsize < 4):  # a result of 16 bits would be rounded after each term
        return None
    gemm = gemm_of(replace(product, depth=(inner,)))
    if gemm is None:
        return None
    return _ProductSum(
        gemm, tuple(axis._replace(x=axis.y, y=axis.x) if gemm.product.is_turned else axis for axis in outer)
    )


class _Products:
    """The products of one step.

    Args:
        algorithms: the algorithms for the products.
        found: the matrices.
        workspace: bytes of the workspace.
        precision: the precision in which products of float32 are computed.
        otherwise: computes the step where the library has no algorithm.
        finish: the epilogue; None: there is none.
    """

    def __init__(
        self, algorithms: Algorithms, found: _ProductSum, workspace: int, precision: str, otherwise: Queue,
        finish: ProductEpilogue | None = None,
    ) -> None:  # fmt: skip
        self._algorithms, self._otherwise, gemm = algorithms, otherwise, found.gemm
        *outer, inner = gemm.product.loops or (Axis(1),)
        self._turned, unit = gemm.product.is_turned, gemm.product.dtype.itemsize
        self._has_bias = finish is not None and finish.bias is not None
        m, n, k = gemm.sizes
        # Columns stand for rows: the transpose of a product is that of the transposes.
        b = _stored(gemm.b, k, n, inner.y // unit)
        a, c = _stored(gemm.a, m, k, inner.x // unit), _stored(gemm.c, m, n, inner.out // unit)
        gelu = finish is not None and finish.gelu
        self._problem = LtProblem(
            gemm.product.dtype, precision, inner.size, b, a, c, workspace, has_bias=self._has_bias, gelu=gelu
        )
        self._plans: dict[tuple[int, ...], LtProduct] = {}  # by alignments
        self._distances = [
            (by_x + term_x, by_y + term_y, by_out, number > 0)
            for by_x, by_y, by_out in _distances(outer)
            for number, (term_x, term_y, _) in enumerate(_distances(found.more))
        ]

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Queues the products.

        Args:
            addresses: the addresses of the operands, the bias where there is one, the result and the workspace.
            stream: the handle of the stream.
        """
        if not self._multiply(addresses, stream, may_measure=True):
            self._otherwise(addresses, stream)

    def capture(self, addresses: Sequence[int], stream: int) -> bool:
        """Queues the products by the library alone. Returns False, with nothing queued, where it has no algorithm or none was
        chosen.

        Args:
            addresses: the addresses that `__call__` takes.
            stream: the handle of the stream.
        """
        return self._multiply(addresses, stream, may_measure=False)

    def library_call(self, addresses: Sequence[int]) -> LibraryCall | None:
        """Returns the one C call by which the products were queued; None where there were several, or none.

        Args:
            addresses: the addresses that `__call__` takes.
        """
        at = 2 + self._has_bias
        x, y, out = addresses[0], addresses[1], addresses[at]
        a, b = (0, 1) if self._turned else (1, 0)
        alignments = _alignments((x, y)[a], (x, y)[b], out)
        product = self._plans.get(alignments)
        if product is None or self._distances != [(0, 0, 0, False)]:
            return None
        divisors = [0] * len(addresses)  # the bias is named in the product's description
        for place, number in zip((a, b, at), alignments, strict=True):
            divisors[place] = number
        room = at + 1 if len(addresses) > at + 1 else None
        return self._algorithms.library.call(product, a, b, at, room, divisors)

    def _multiply(self, addresses: Sequence[int], stream: int, may_measure: bool) -> bool:
        x, y, *bias = addresses[: 2 + self._has_bias]
        out, *workspaces = addresses[2 + self._has_bias :]
        workspace = workspaces[0] if workspaces else 0
        if self._turned:
            x, y = y, x
        planned: list[tuple[LtProduct, tuple[int, ...], bool]] = []
        for by_x, by_y, by_out, adds in self._distances:
            places = y + by_y, x + by_x, out + by_out
            alignments = _alignments(*places)
            product = self._plans.get(alignments) or self._algorithms.find(self._problem, alignments)
            if product is None and may_measure:
                run = partial(self._queue, addresses=(*places, *bias), workspace=workspace)
                product = self._algorithms.choose(self._problem, alignments, run, stream)
            if product is None:
                return False
            if alignments not in self._plans:
                self._plans[alignments] = product.apart() if self._has_bias else product
            product = self._plans[alignments]
            planned.append((product, (*places, *bias), adds))
        for product, operands, adds in planned:
            self._queue(product, stream, operands, workspace, adds)
        return True

    def _queue(
        self, product: LtProduct, stream: int, addresses: Sequence[int], workspace: int, adds: bool = False
    ) -> None:
        self._algorithms.library.queue(product, addresses, workspace, stream, adds)


def _alignments(*addresses: int) -> tuple[int, ...]:
    """Returns the powers of two that divide addresses."""
    return tuple([math.gcd(address, _MOST_ALIGNED) for address in addresses])


def _distances(axes: Sequence[Axis]) -> list[tuple[int, int, int]]:
    """Returns the distances of x, y and out in loops over axes."""
    found = [(0, 0, 0)]
    for axis in axes:
        found = [(x + i * axis.x, y + i * axis.y, out + i * axis.out) for x, y, out in found for i in range(axis.size)]
    return found


def _stored(matrix: Matrix, rows: int, columns: int, batch: int) -> Stored:
    """Returns a row-major matrix as the columns of its transpose."""
    lies = (rows, columns) if matrix.transposed else (columns, rows)
    return Stored(*lies, max(matrix.leading, lies[0]), batch, matrix.transposed)


# -- with an epilogue --------------------------------------------------------------------------------------------------


def _finish(graph: Graph, machine: Target) -> tuple[Epilogue, ProductEpilogue] | None:
    """The epilogue of a `with_epilogue` node; None where the library has none."""
    epilogue = Epilogue.of(graph, machine)
    if epilogue is None or epilogue.product.command is not dot:
        return None
    finish = finish_of(epilogue)
    return None if finish is None else (epilogue, finish)


def _gemm_with(epilogue: Epilogue, inputs: Sequence[View], out: View) -> _ProductSum | None:
    """The matrices of a product with an epilogue; None where the bias does not lie along the columns, element by element."""
    more = epilogue.all_strides(inputs, (out,))[:-1]
    found = _gemm_of(epilogue.product.params, inputs, out, more)
    if found is None or found.more or not more:
        return None if found is None or found.more else found
    product = found.gemm.product
    lies = product.columns.more[0] == product.dtype.itemsize and product.columns.size > 1
    return found if lies and not any(axis.more[0] for axis in (product.rows, *product.loops)) else None


def _supports_joined(machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    """Whether the library takes operands that lie densely."""
    found = _finish(params["graphs"][0], machine)
    if found is None:
        return False
    epilogue, _ = found
    result = epilogue.graph.outputs[0].spec
    views = [View.whole(i, spec) for i, spec in enumerate(specs)]
    return _gemm_with(epilogue, views, View.whole(len(views), result)) is not None


def _workspace_joined(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
    return _workspace(specs[:2], params["graphs"][0].nodes[0].params)


def _compute(finish: ProductEpilogue, product: Mapping[str, Any], x: Any, y: Any, *bias: Any, **params: Any) -> Any:
    """A product with its epilogue, by functions of NumPy's."""
    return finish.apply(reference[dot](x, y, **product), *(bias or (None,)))


def _queue_joined(machine: Target, step: Step, device: Any, precision: str) -> Queue:
    """Returns the function that queues a product with an epilogue."""
    found = _finish(step.graphs[0], machine)
    if found is None:
        raise InternalError("with_epilogue: the sub-graph is no product with an epilogue of cuBLASLt")
    epilogue, finish = found
    otherwise = queue_function(step, device, partial(_compute, finish, epilogue.product.params), step.outputs[:1])
    gemm = _gemm_with(epilogue, step.inputs, step.outputs[0])
    algorithms: Algorithms | None = device.library(_new_algorithms)
    if algorithms is None or gemm is None:
        return otherwise
    return _Products(algorithms, gemm, _workspace_of(step), precision, otherwise, finish)


add_kernel(dot, Kernel(BACKEND, _run, _supports, workspace=_workspace, device=CUDA, queue=_queue))


def _joined(machine: Target) -> Kernel:
    return Kernel(
        BACKEND,
        run_by_graph,
        partial(_supports_joined, machine),
        workspace=_workspace_joined,
        in_place=False,
        device=CUDA,
        queue=partial(_queue_joined, machine),
    )


add_kernel("with_epilogue", KernelFactory(BACKEND, _joined, device=CUDA))


# -- epilogues ---------------------------------------------------------------------------------------------------------

# Epilogues of matrix products that cuBLASLt computes: a bias, and the gelu by tanh.
#
#     d = p + b     d = gelu(p)     d = gelu(p + b)
#
# The library's relu is none of them: it is documented as max(x, 0), which says nothing of NaN, and nnc's relu keeps NaN. Its
# gradients of relu and gelu read values that its own forward product wrote, which nnc's programs do not keep.


term: Attribute[str] = Attribute("cublaslt_term", "the name of a command in the expressions of cuBLASLt's epilogues")
term.set("add", "+")
term.set("mul", "*")
term.set("sigmoid", "sigmoid")

_DTYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16)  # of float64 the library documents no epilogue
_SLOPE = math.sqrt(8 / math.pi)  # ½ + ½ tanh(u) is the sigmoid of 2u
_CURVE = 0.044715 * _SLOPE


@record
class ProductEpilogue:
    """An epilogue of a product.

    Attributes:
        bias: the position of the operand that is added along the last axis of the result; None: there is none.
        gelu: whether the gelu of the sum is the result.
    """

    bias: int | None
    gelu: bool

    def apply(self, product: Any, bias: Any) -> Any:
        """Computes the result by NumPy's functions, which also take CuPy's arrays.

        Args:
            product: an array of a dtype that such functions compute in.
            bias: a vector along the last axis; None: there is none.
        """
        x = product if bias is None else product + bias.reshape(-1)
        if not self.gelu:
            return x
        wide = x.astype(np.float32)
        return (wide * (0.5 + 0.5 * np.tanh(wide * (_SLOPE + _CURVE * (wide * wide)) / 2))).astype(x.dtype)


def finish_of(epilogue: Epilogue) -> ProductEpilogue | None:
    """The library's epilogue for a sub-graph; None where it has none with these very values.

    Args:
        epilogue: of a `dot`.
    """
    graph, result = epilogue.graph, epilogue.product.outputs[0]
    dtype, others = result.dtype, graph.inputs[2:]
    if dtype not in _DTYPES or len(graph.outputs) != 1 or len(others) > 1:
        return None
    terms = _Terms()
    terms.known[result] = terms.leaf("product")
    for symbol in others:
        axes = tuple(label for label in epilogue.domain.axes(symbol) if label != UNIT)
        if symbol.dtype != dtype or axes != epilogue.domain.axes(result)[-1:]:
            return None
        terms.known[symbol] = terms.leaf("bias")
    for symbol, number in graph.constants.items():
        terms.known[symbol] = terms.leaf(float(number.reshape(-1)[0]) if number.size == 1 else symbol)
    if not all(node.outputs[0].dtype == dtype and terms.take(node) for node in epilogue.nodes):
        return None
    found, sum_ = terms.known[graph.outputs[0]], terms.leaf("product")
    if others:
        sum_ = terms.of("+", sum_, terms.leaf("bias"))
    bias = 2 if others else None
    if found == terms.gelu(sum_, dtype):
        return ProductEpilogue(bias, gelu=True)
    return ProductEpilogue(bias, gelu=False) if others and found == sum_ else None


@dataclass
class _Terms:
    """Numbers expressions; equal expressions get the same number, and the order of a commutative command's operands does not
    count.
    """

    known: dict[Symbol, int] = field(default_factory=dict)
    _numbers: dict[Any, int] = field(default_factory=dict)

    def leaf(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def of(self, name: str, *operands: int) -> int:
        return self.leaf((name, tuple(sorted(operands))))

    def take(self, node: Node) -> bool:
        """Numbers the result of a node; False where the command is in no epilogue."""
        inputs = [self.known[symbol] for symbol in node.inputs]
        name = term.get(node.command)
        if is_view(node):
            self.known[node.outputs[0]] = inputs[0]
            return True
        if name is None or (len(inputs) > 1 and node.command not in commutes):
            return False
        self.known[node.outputs[0]] = self.of(name, *inputs)
        return True

    def gelu(self, x: int, dtype: Any) -> int:
        """Returns the gelu by tanh of an expression, as `nnc.nn.gelu` writes it in a dtype."""
        slope, curve = (self.leaf(float(np.asarray(number, dtype))) for number in (_SLOPE, _CURVE))
        inner = self.of("*", x, self.of("+", slope, self.of("*", curve, self.of("*", x, x))))
        return self.of("*", x, self.of("sigmoid", inner))
