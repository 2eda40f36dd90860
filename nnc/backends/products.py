"""Turns a `dot` step into matrix products: loops over matrices whose rows and columns lie at even distances.

Axes with the same role are merged where they lie evenly in both tensors that have them, so that most contractions are one product
of matrices, or a loop over such products, without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nnc.base.dtypes import DType
from nnc.base.records import record
from nnc.lower.plan.stages import Step, Strides, View


class Axis(NamedTuple):
    """A loop: its length, and how many bytes further each iteration lies in the left operand, the right one, the result, and in
    `more` tensors that are traversed along with the result.
    """

    size: int
    x: int = 0
    y: int = 0
    out: int = 0
    more: tuple[int, ...] = ()

    @property
    def strides(self) -> tuple[int, ...]:
        """All distances."""
        return self.x, self.y, self.out, *self.more

    @property
    def fixed(self) -> Axis:
        """The same, with integers where there are numbers that a kernel would take."""
        return Axis(int(self.size), int(self.x), int(self.y), int(self.out), tuple(map(int, self.more)))


@record
class Product:
    """For each iteration of `loops`: out[i, j] = sum over `depth` of x[i, …] · y[…, j].

    `rows` are in `x` and `out`, `columns` in `y` and `out`, `depth` in both operands. All depth axes are summed; the last one is
    is the axis of the matrices. Lists have no axes of size 1; without rows or columns there is one such axis. Where `is_turned`,
    `x` is the right operand of the command.
    """

    dtype: DType
    loops: tuple[Axis, ...]
    rows: Axis
    columns: Axis
    depth: tuple[Axis, ...]
    is_turned: bool = False

    @property
    def axes(self) -> tuple[tuple[Axis, ...], Axis, Axis, tuple[Axis, ...]]:
        """All axes."""
        return self.loops, self.rows, self.columns, self.depth

    @property
    def k(self) -> int:
        """Terms of each sum."""
        return math.prod(axis.size for axis in self.depth)

    @property
    def count(self) -> int:
        """The number of products of matrices."""
        return math.prod(axis.size for axis in self.loops)

    @property
    def volume(self) -> int:
        """Multiplications of one product of matrices."""
        return self.rows.size * self.columns.size * self.k

    @property
    def operands(self) -> tuple[str, str]:
        """The pointers of x and y among the parameters of a compiled function."""
        return ("%in1", "%in0") if self.is_turned else ("%in0", "%in1")

    @property
    def fixed(self) -> Product:
        """The same, with integers where there are numbers that a kernel would take."""
        loops, depth = ([axis.fixed for axis in axes] for axes in (self.loops, self.depth))
        return Product(self.dtype, tuple(loops), self.rows.fixed, self.columns.fixed, tuple(depth), self.is_turned)

    def turned(self) -> Product:
        """Returns the same result as the transpose of yᵀxᵀ."""
        loops, depth = tuple(map(_turn, self.loops)), tuple(map(_turn, self.depth))
        return Product(self.dtype, loops, _turn(self.columns), _turn(self.rows), depth, not self.is_turned)


def _turn(axis: Axis) -> Axis:
    return axis._replace(x=axis.y, y=axis.x)


def product_of(step: Step) -> Product:
    """Returns the matrix products of a step whose first two inputs are the operands of a `dot`, and whose result has elements."""
    return make_product(step.params, step.inputs[0], step.inputs[1], (step.outputs[0].strides,))


def make_product(params: Mapping[str, Any], left: View, right: View, results: Sequence[Strides]) -> Product:
    """Returns the matrix products of a `dot` with these parameters. `results` are the strides, along the axes of the result, of
    the result itself and of the `more` tensors that are traversed with it.
    """
    (x, shape_x), (y, shape_y) = ((view.strides, view.spec.shape) for view in (left, right))
    contract, batch = params["contract"], params.get("batch", ((), ()))
    axes = [(out, tuple(more)) for out, *more in zip(*results, strict=True)]  # strides of the result
    loops = [Axis(shape_x[a], x[a], y[b], *axes[i]) for i, (a, b) in enumerate(zip(*batch, strict=True))]
    free_x = [a for a in range(len(x)) if a not in (*batch[0], *contract[0])]
    free_y = [b for b in range(len(y)) if b not in (*batch[1], *contract[1])]
    at = len(loops)
    rows = [Axis(shape_x[a], x[a], 0, *axes[at + i]) for i, a in enumerate(free_x)]
    at += len(rows)
    columns = [Axis(shape_y[b], 0, y[b], *axes[at + i]) for i, b in enumerate(free_y)]
    depth = [Axis(shape_x[a], x[a], y[b]) for a, b in zip(*contract, strict=True)]
    none = Axis(1, more=(0,) * (len(results) - 1))
    row, more_rows = _largest(merge_axes(rows), none)
    column, more_columns = _largest(merge_axes(columns), none)
    merged = merge_axes(depth)
    inner, outer = _largest(merged, Axis(1))
    return Product(left.spec.dtype, (*merge_axes(loops), *more_rows, *more_columns), row, column, (*outer, inner))


def merge_axes(axes: Sequence[Axis]) -> list[Axis]:
    """Merges loops into as few axes as possible, the largest distances first. Their order does not change the result."""
    ordered = sorted((axis for axis in axes if axis.size != 1), key=lambda axis: [-abs(s) for s in axis.strides])
    merged: list[Axis] = []
    for axis in ordered:
        if merged and all(a == axis.size * b for a, b in zip(merged[-1].strides, axis.strides, strict=True)):
            merged[-1] = axis._replace(size=merged[-1].size * axis.size)
        else:
            merged.append(axis)
    return merged


def _largest(axes: list[Axis], none: Axis) -> tuple[Axis, list[Axis]]:
    """Returns the axis that stays with the matrices (`none` if there is no axis), and those around them: it is the longest, of
    equal ones the innermost.
    """
    if not axes:
        return none, []
    at = max(range(len(axes)), key=lambda i: (axes[i].size, i))
    return axes[at], axes[:at] + axes[at + 1 :]


# -- matrices as BLAS takes them ---------------------------------------------------------------------------------------


class Matrix(NamedTuple):
    """A row-major matrix as BLAS takes it: whether it is used transposed, and the elements from row to row as it lies."""

    transposed: bool
    leading: int


class Gemm(NamedTuple):
    """Row-major matrices: c = a · b, m rows, n columns, k terms."""

    product: Product
    a: Matrix
    b: Matrix
    c: Matrix

    @property
    def sizes(self) -> tuple[int, int, int]:
        """m, n and k."""
        return self.product.rows.size, self.product.columns.size, self.product.k


def gemm_of(product: Product) -> Gemm | None:
    """Returns the product as BLAS takes it; None where a matrix has no unit stride, or the sum goes over several axes."""
    if len(product.depth) != 1:
        return None
    for turned in (False, True):
        asked = product.turned() if turned else product
        rows, columns, (depth,) = asked.rows, asked.columns, asked.depth
        unit = product.dtype.itemsize
        a = _matrix(rows.size, depth.size, rows.x, depth.x, unit)
        b = _matrix(depth.size, columns.size, depth.y, columns.y, unit)
        c = _matrix(rows.size, columns.size, rows.out, columns.out, unit)
        if a is not None and b is not None and c is not None and not c.transposed:
            return Gemm(asked, a, b, c)
    return None


def _matrix(rows: int, columns: int, row: int, column: int, unit: int) -> Matrix | None:
    for transposed in (False, True):
        outer, inner, step, fine = (columns, rows, column, row) if transposed else (rows, columns, row, column)
        if (inner == 1 or fine == unit) and (outer == 1 or (step >= inner * unit and step % unit == 0)):
            return Matrix(transposed, step // unit if outer > 1 else inner)
    return None
