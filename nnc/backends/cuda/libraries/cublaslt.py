"""NVIDIA's library of matrix products cuBLASLt, called by its C functions: CuPy has no binding of it.

Source: cuBLAS documentation, chapter "Using the cuBLASLt API"; numbers are those of cublasLt.h, cublas_api.h and library_types.h,
which have been the same since CUDA 11.
"""

from __future__ import annotations

import copy
import ctypes
import importlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.base.records import record
from nnc.device.cuda import LibraryCall, Operand
from nnc.errors import DeviceError, user_error
from nnc.run.store.cache import Cache, CacheEntry

_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
_LOADERS = ("cupy_backends.cuda.libs.cublas",)  # importing it loads cuBLAS from the packages that CuPy depends on

# cudaDataType_t
_TYPES: Mapping[Any, int] = MappingProxyType(
    {dtypes.float32: 0, dtypes.float64: 1, dtypes.float16: 2, dtypes.bfloat16: 14}
)
# cublasComputeType_t of products of float32, by precision
_SUMS: Mapping[str, int] = MappingProxyType({"float32": 68, "tf32": 77, "bfloat16": 75})
_SUM_DOUBLE = 70  # CUBLAS_COMPUTE_64F
_TRANSPOSED_LEFT, _TRANSPOSED_RIGHT = 3, 4  # cublasLtMatmulDescAttributes_t, as the next two
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_EPILOGUE, _BIAS = 7, 8
_MOST_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t: of A, B, C and D
_TRANSPOSE = 1  # CUBLAS_OP_T
_MOST_PLANS = 8  # algorithms that are asked for: of 4096³ in tf32 the third was a fifth faster than the first
_ADD_BIAS, _GELU = 4, 32  # bits of cublasLtEpilogue_t


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


@record
class Stored:
    """A matrix in memory, in column-major order.

    Attributes:
        rows: its rows in memory.
        columns: its columns in memory.
        leading: elements from one column to the next.
        batch: elements from one matrix to the next; 0 where all are the same.
        transposed: whether the product takes its transpose.
    """

    rows: int
    columns: int
    leading: int
    batch: int = 0
    transposed: bool = False


@record
class LtProblem:
    """A product: d = a · b, a · b + bias, gelu(a · b) or gelu(a · b + bias).

    A bias has one element for each row of d in memory, contiguous, in the dtype of the matrices.

    Attributes:
        dtype: the dtype of the matrices.
        precision: the precision in which products of float32 are computed.
        count: the number of products.
        a: the left matrix.
        b: the right matrix.
        d: the result, which is not transposed.
        workspace: bytes that the library may use meanwhile.
        has_bias: whether a bias is added.
        gelu: whether the gelu of the sum is computed, by its tanh formula.
    """

    dtype: Any
    precision: str
    count: int
    a: Stored
    b: Stored
    d: Stored
    workspace: int
    has_bias: bool = False
    gelu: bool = False

    @property
    def operations(self) -> int:
        """Additions and multiplications."""
        terms = self.a.rows if self.a.transposed else self.a.columns
        return 2 * self.count * self.d.rows * self.d.columns * terms


class CublasLt:
    """Calls cuBLASLt on one device, which must be current.

    Args:
        library: the C functions of the library.

    Attributes:
        version: the version of the library.
    """

    def __init__(self, library: Any) -> None:
        self._library, self._handle = library, ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))
        self.version = int(library.cublasLtGetVersion())

    def plans(self, problem: LtProblem, alignments: Sequence[int]) -> list[LtProduct]:
        """Returns the ways to compute a product, in the order in which the library ranks their speed; empty where it has none.

        Args:
            alignments: the alignments of the addresses of a, b and d, in bytes.
        """
        first = LtProduct(self, problem)
        preference = self._new("cublasLtMatmulPreference")
        try:
            self._set("cublasLtMatmulPreference", preference, _MOST_WORKSPACE, ctypes.c_uint64(problem.workspace))
            left, right, result = alignments
            for number, alignment in zip(_ALIGNMENTS, (left, right, result, result), strict=True):
                self._set("cublasLtMatmulPreference", preference, number, ctypes.c_uint32(alignment))
            found, count = (_Heuristic * _MOST_PLANS)(), ctypes.c_int()
            code = self._library.cublasLtMatmulAlgoGetHeuristic(
                self._handle, first.operation, *first.layouts, first.layouts[2], preference, _MOST_PLANS, found, ctypes.byref(count)
            )  # fmt: skip
        finally:
            self._call("cublasLtMatmulPreferenceDestroy", preference)
        return [] if code else [first.by(each.algo) for each in found[: count.value] if not each.state]

    def queue(
        self, product: LtProduct, addresses: Sequence[int], workspace: int, stream: int, adds: bool = False
    ) -> None:
        """Queues products.

        Args:
            addresses: the addresses of a, b and d, and of the bias where there is one.
            workspace: the address of as many bytes as the problem says.
            stream: the handle of the stream.
            adds: whether the products are added to d.
        """
        a, b, d, *bias = addresses
        for each in bias:
            self._set("cublasLtMatmulDesc", product.operation, _BIAS, ctypes.c_void_p(each))
        self._call("cublasLtMatmul", *map(ctypes.c_void_p, self._arguments(product, a, b, d, workspace, stream, adds)))

    def call(
        self, product: LtProduct, a: int, b: int, d: int, workspace: int | None, alignments: Sequence[int]
    ) -> LibraryCall:
        """Returns the C call that queues a product with the bias that was given last.

        Args:
            a: the position of the left matrix among the operands.
            b: the position of the right matrix.
            d: the position of the result.
            workspace: the position of the workspace; None where the product has none.
            alignments: the alignments of all operands, as a call has them.
        """
        room = 0 if workspace is None else Operand(workspace)
        given = self._arguments(product, Operand(a), Operand(b), Operand(d), room, Operand(len(alignments)))
        function = ctypes.cast(self._library.cublasLtMatmul, ctypes.c_void_p).value or 0
        return LibraryCall(function, given, alignments, product)

    def _arguments(
        self, product: LtProduct, a: Any, b: Any, d: Any, workspace: Any, stream: Any, adds: bool = False
    ) -> list[Any]:
        """Returns the arguments of cublasLtMatmul: C is D."""
        one, zero = map(ctypes.addressof, product.factors)
        left, right, result = (layout.value for layout in product.layouts)
        return [
            self._handle.value, product.operation.value, one, a, left, b, right, one if adds else zero, d, result, d, result,
            ctypes.addressof(product.algorithm), workspace, product.problem.workspace, stream,
        ]  # fmt: skip

    def new_operation(self, problem: LtProblem) -> ctypes.c_void_p:
        """Returns a description of the operation."""
        double = problem.dtype == dtypes.float64
        sums = _SUM_DOUBLE if double else _SUMS[problem.precision if problem.dtype == dtypes.float32 else "float32"]
        found = self._new("cublasLtMatmulDesc", sums, _TYPES[dtypes.float64 if double else dtypes.float32])
        for number, matrix in ((_TRANSPOSED_LEFT, problem.a), (_TRANSPOSED_RIGHT, problem.b)):
            if matrix.transposed:
                self._set("cublasLtMatmulDesc", found, number, ctypes.c_int32(_TRANSPOSE))
        epilogue = _ADD_BIAS * problem.has_bias + _GELU * problem.gelu
        if epilogue:
            self._set("cublasLtMatmulDesc", found, _EPILOGUE, ctypes.c_uint32(epilogue))
        return found

    def forget_operation(self, operation: ctypes.c_void_p) -> None:
        """Frees a description of an operation that no product uses any more."""
        self._call("cublasLtMatmulDescDestroy", operation)

    def new_layout(self, problem: LtProblem, matrix: Stored) -> ctypes.c_void_p:
        """Returns a description of a matrix."""
        rows, columns, leading = (
            ctypes.c_uint64(matrix.rows),
            ctypes.c_uint64(matrix.columns),
            ctypes.c_int64(matrix.leading),
        )
        found = self._new("cublasLtMatrixLayout", _TYPES[problem.dtype], rows, columns, leading)
        if problem.count > 1:
            self._set("cublasLtMatrixLayout", found, _BATCH_COUNT, ctypes.c_int32(problem.count))
            self._set("cublasLtMatrixLayout", found, _BATCH_STRIDE, ctypes.c_int64(matrix.batch))
        return found

    def _new(self, kind: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(f"{kind}Create", ctypes.byref(made), *arguments)
        return made

    def _set(self, kind: str, described: ctypes.c_void_p, number: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(f"{kind}SetAttribute", described, number, ctypes.byref(value), size)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            fix = "look at nvidia-smi for other programs on the device; set CUBLASLT_LOG_LEVEL=5 for the library's own words."
            raise user_error(DeviceError, "dot", f"{name} of cuBLASLt reports status {code}.", fix=fix)


class LtProduct:
    """A planned product; `library` plans it."""

    def __init__(self, library: CublasLt, problem: LtProblem) -> None:
        self._library, self.problem = library, problem
        self.operation = library.new_operation(problem)
        self.layouts = [library.new_layout(problem, matrix) for matrix in (problem.a, problem.b, problem.d)]
        kind = ctypes.c_double if problem.dtype == dtypes.float64 else ctypes.c_float
        self.factors = kind(1), kind(0)
        self.algorithm: Any = None

    def by(self, algorithm: Any) -> LtProduct:
        """Returns the product by one of the library's algorithms."""
        twin = copy.copy(self)
        twin.algorithm = algorithm
        return twin

    def apart(self) -> LtProduct:
        """Returns the product with a description of its own, which holds the address of its bias: other threads change theirs
        meanwhile.
        """
        twin = copy.copy(self)
        twin.operation = self._library.new_operation(self.problem)
        weakref.finalize(twin, self._library.forget_operation, twin.operation)
        return twin


def takes(dtype: Any) -> bool:
    """Whether the library computes products of operands of a dtype."""
    return dtype in _TYPES


@cache
def load_library() -> Any:
    """Returns the library's C functions; None where it is not installed."""
    for name in _LOADERS:
        with suppress(ImportError):
            importlib.import_module(name)
    for name in _NAMES:
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


# -- the choice of an algorithm ----------------------------------------------------------------------------------------

# An algorithm is measured once for each product of some size, and kept on disk. The library's own order comes from a model of the
# device. Of a product of 4096² matrices in tf32 its third algorithm was a fifth faster than its first (measured on an H100).
# Algorithms add in other orders, so a choice is kept for later processes, which give the same bits then.


_KIND = "cublaslt"  # of entries on disk
_LARGE = 1 << 24  # operations of a product that takes longer than its launch
_GAIN = 0.97  # of the first algorithm's time: another one must take less, as times vary by so much


class Algorithms:
    """The products that one device computes by cuBLASLt."""

    def __init__(self, device: Any, library: CublasLt) -> None:
        self._device, self.library = device, library
        folder = Options.from_environment().cache_folder
        self._cache = None if folder is None else Cache(folder)
        self._known: dict[tuple[LtProblem, tuple[int, ...]], LtProduct | None] = {}

    def find(self, problem: LtProblem, alignments: tuple[int, ...]) -> LtProduct | None:
        """Returns the product with the algorithm that was chosen before.

        Args:
            alignments: the alignments of the addresses of a, b and d, in bytes.
        """
        return self._known.get((problem, alignments))

    def choose(
        self, problem: LtProblem, alignments: tuple[int, ...], run: Callable[[LtProduct, int], None], stream: int
    ) -> LtProduct | None:
        """Returns the product with the fastest algorithm; None where the library has none.

        Args:
            alignments: the alignments of the addresses of a, b and d, in bytes.
            run: queues a product in the stream of a handle; it may be called any number of times.
            stream: the handle of the stream in which to measure.
        """
        key = problem, alignments
        if key not in self._known:
            plans = self.library.plans(problem, alignments)
            if len(plans) > 1 and problem.operations >= _LARGE:
                self._known[key] = plans[self._place(key, plans, run, stream)]
            else:
                self._known[key] = plans[0] if plans else None
        return self._known[key]

    def _place(self, key: Any, plans: Sequence[LtProduct], run: Callable[[LtProduct, int], None], stream: int) -> int:
        """Returns the place of the fastest plan, as it was measured before, also by another process."""
        entry = self._entry(key)
        found = None if entry is None else entry.read()
        if isinstance(found, int) and 0 <= found < len(plans):
            return found
        times = [self._device.time(partial(run, plan), stream) for plan in plans]
        best = min(range(len(plans)), key=times.__getitem__)
        place = best if times[best] < _GAIN * times[0] else 0
        if entry is not None:
            entry.write(place)
        return place

    def _entry(self, key: Any) -> CacheEntry | None:
        if self._cache is None:
            return None
        return CacheEntry(
            self._cache, _KIND, {"device": self._device.model, "cuBLASLt": self.library.version, "product": repr(key)}
        )
