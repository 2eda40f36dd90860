"""Prints the Cholesky factorisation of one matrix, panel of columns by panel of columns.

The rows of U = Lᵀ above the diagonal of a panel are the solution of a triangular system with the columns that are factorised
already, and are computed as `triangular_solve` does it; on the diagonal, tiles are factorised in registers. At 400 × 400, on a Zen
5 core, that is twice as fast as OpenBLAS.
"""

from __future__ import annotations

from nnc.backends.cpu.kernels.products.triangular import Solver, System
from nnc.backends.cpu.kernels.vectors import masks_of, write_row
from nnc.backends.printer import Bound, times
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.lower.kernels.builder import Code, Slot, Value

_ROWS = 8


def row_bytes(n: int, dtype: DType) -> int:
    """Bytes from row to row, so that rows do not all fall on the same lines of a cache."""
    return n * dtype.itemsize + (64 if n * dtype.itemsize % 512 == 0 else 0)


def print_cholesky(code: Code, matrix: str, n: int, dtype: DType, machine: Target) -> Value:
    """Factorises a symmetric matrix with rows `row_bytes` apart: its upper triangle becomes U, the rest is of no use.

    Returns a bool: whether a pivot is not positive. NaN goes through, as in LAPACK.
    """
    return _Factor(code, matrix, n, dtype, machine).print()


class _Factor:
    def __init__(self, code: Code, matrix: str, n: int, dtype: DType, machine: Target) -> None:
        self.code, self.matrix, self.n, self.dtype, self.step = code, matrix, n, dtype, row_bytes(n, dtype)
        lanes = machine.vector_bytes // dtype.itemsize
        while lanes > 2 and lanes // 2 >= n:
            lanes //= 2
        self.lanes = lanes
        rows = min(_ROWS if machine.registers > 16 else _ROWS // 2, lanes)
        self.columns = lanes * (3 if dtype.itemsize == 8 else 2)
        size = dtype.itemsize
        rows_first, columns_first = (self.step, size), (size, self.step)
        system = System(dtype, (), n, self.columns, columns_first, rows_first, rows_first, (0, 0, 0), False)
        self.solver = Solver(system, lanes=lanes, rows=rows, buffered=False)
        self.failed: Slot = code.slot(code.constant(False, dtypes.bool_))

    def print(self) -> Value:
        """Returns all panels."""
        whole = self.n // self.columns * self.columns
        if whole:
            with self.code.loop(0, whole, self.columns) as first:
                self._panel(first, self.columns)
        if self.n % self.columns:
            self._panel(whole, self.n % self.columns)
        return self.code.read(self.failed)

    def _panel(self, first: Bound, width: int) -> None:
        code, rows = self.code, self.solver.rows
        panel = code.offset(self.matrix, times(code, first, self.dtype.itemsize))
        pointers = [self.matrix, panel, panel]
        if not (isinstance(first, int) and first == 0):
            with code.loop(0, first, rows) as at:
                self.solver.tile(code, pointers, "", at, rows, width)
        for below in range(0, width, rows):
            self._corner(pointers, first, below, min(rows, width - below), width)

    def _corner(self, pointers: list[str], first: Bound, below: int, rows: int, width: int) -> None:
        """Rows that begin `below` the panel's first one on the diagonal."""
        code, lanes, size = self.code, self.lanes, self.dtype.itemsize
        at = code.add(code.integer(first), code.integer(below))
        values = self.solver.remainders(code, pointers, "", at, rows, width)
        for i in range(rows):
            square = self._element(values[i], below + i)
            now = code.or_(code.read(self.failed), code.compare("le", square, code.like(square, 0)))
            code.write(self.failed, now)
            root = code.splat(code.intrinsic("sqrt", square), lanes)
            values[i] = [code.div(value, root) for value in values[i]]
            for j in range(i + 1, rows):
                factor = code.neg(code.splat(self._element(values[i], below + j), lanes))
                values[j] = [code.fma(factor, top, value) for top, value in zip(values[i], values[j], strict=True)]
        target = code.offset(pointers[2], code.mul(at, code.integer(self.step)))
        for i, row in enumerate(values):
            for v, (value, mask) in enumerate(zip(row, masks_of(code, lanes, width), strict=True)):
                write_row(code, code.offset(target, i * self.step), v * lanes, size, value, mask, size)

    def _element(self, row: list[Value], column: int) -> Value:
        vector = row[column // self.lanes]
        return Value(self.code.let(f"extractelement {vector.typed}, i64 {column % self.lanes}"), self.dtype)
