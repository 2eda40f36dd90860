"""Printed products with an epilogue: a tile's epilogue is computed, and its result written, while the tile is in the nearest cache.

The sums of a tile lie in memory on the stack, so that the epilogue stands in the code once for a row of the tile rather than once
for each of its registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from nnc.backends.cpu.kernels.products.gemm import print_tiles
from nnc.backends.cpu.kernels.products.tiles import Destination
from nnc.backends.cpu.kernels.products.tiling import Shape, oriented_for_tiles, shape_of
from nnc.backends.cpu.kernels.vectors import read_row, write_row
from nnc.backends.numpy_ref import run_by_graph
from nnc.backends.printer import Bound, Printer, times
from nnc.backends.products import Product, make_product
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.commands.contract import dot
from nnc.device import CPU
from nnc.errors import InternalError
from nnc.graph import Kernel, Symbol, TensorSpec, add_kernel, find_kernel
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.epilogue import Epilogue, evaluate
from nnc.lower.kernels.kernel_ir import graph_key
from nnc.lower.kernels.native import PRINTED, Native
from nnc.lower.kernels.sizes import Numbers, find_sized
from nnc.lower.plan.stages import Step, View, row_major


class _FusedFinish(NamedTuple):
    """Computes the epilogue, row by row of the sums."""

    epilogue: Epilogue
    product: Product
    shape: Shape
    pointers: tuple[str, ...]

    def fetch(self, code: Code, pointers: Sequence[str], rows: int, width: int) -> None:
        """See `gemm.Finish`. Rows of a tile lie in as many pages, too short and too far apart for the processor to foresee them."""
        first_output = len(self.epilogue.operands) - len(self.epilogue.graph.outputs)
        steps = zip(self.product.rows.more, self.product.columns.more, strict=True)
        far = [
            (pointer, step, symbol.dtype.itemsize * width - 1, int(k >= first_output))
            for k, (symbol, pointer, (step, column)) in enumerate(
                zip(self.epilogue.operands, pointers, steps, strict=True)
            )
            if step and column == symbol.dtype.itemsize
        ]
        if not far:
            return
        code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        with code.loop(0, rows) as i:
            for pointer, step, last, writes in far:
                row = code.offset(pointer, times(code, i, step))
                for at in (*range(0, last, self.shape.tile.machine.memory.line_bytes), last):
                    code.line(f"call void @llvm.prefetch.p0(ptr {code.offset(row, at)}, i32 {writes}, i32 3, i32 1)")

    def rows(
        self,
        code: Code,
        sums: Destination,
        pointers: Sequence[str],
        first: Bound,
        end: Bound,
        masks: Sequence[Value | None],
    ) -> None:
        """See `gemm.Finish`."""
        lanes, graph = self.shape.tile.lanes, self.epilogue.graph
        inputs, outputs = graph.inputs[2:], graph.outputs
        along_rows, along_columns = self.product.rows.more, self.product.columns.more
        reader = _Reader(code, lanes, masks)
        for k, symbol in enumerate(inputs):
            if not along_rows[k]:
                reader.read(symbol, pointers[k], along_columns[k])
        with code.loop(first, end) as i:
            moved = [code.offset(p, times(code, i, step)) for p, step in zip(pointers, along_rows, strict=True)]
            for k, symbol in enumerate(inputs):
                if along_rows[k]:
                    reader.read(symbol, moved[k], along_columns[k])
            row = code.offset(sums.pointer, times(code, i, sums.row))
            for v, mask in enumerate(masks):
                total = read_row(code, row, v * lanes, sums.column, sums.dtype, lanes, None)
                known = {symbol: values[v] for symbol, values in reader.known.items()}
                known[self.epilogue.product.outputs[0]] = code.convert(total, self.product.dtype)
                results = evaluate(code, self.epilogue, known)
                for k, (symbol, value) in enumerate(zip(outputs, results, strict=True), len(inputs)):
                    unit = symbol.dtype.itemsize
                    write_row(code, moved[k], v * lanes, along_columns[k], value, mask, unit)


class _Reader:
    """The values of inputs, one for each vector of a row."""

    def __init__(self, code: Code, lanes: int, masks: Sequence[Value | None]) -> None:
        self.code, self.lanes, self.masks = code, lanes, masks
        self.known: dict[Symbol, list[Value]] = {}

    def read(self, symbol: Symbol, pointer: str, step: int) -> None:
        """Reads a row, whose elements lie `step` bytes apart."""
        code, lanes = self.code, self.lanes
        if step == 0:
            self.known[symbol] = [code.load(pointer, symbol.dtype)] * len(self.masks)
        else:
            self.known[symbol] = [
                read_row(code, pointer, v * lanes, step, symbol.dtype, lanes, mask) for v, mask in enumerate(self.masks)
            ]


# -- the kernel --------------------------------------------------------------------------------------------------------


def _supports(machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    """Products that the printed kernel would compute anyway, in tiles."""
    (graph,) = params["graphs"]
    epilogue = Epilogue.of(graph, machine)
    if epilogue is None or epilogue.product.command is not dot or not graph.nodes[0].outputs[0].spec.size:
        return False
    node = epilogue.product
    alone = find_kernel(node.command, specs[:2], node.params, machine)
    if alone is None or alone.backend != CPU:
        return False
    x, y = specs[:2]
    left, right = View.whole(0, x), View.whole(1, y)
    product = make_product(node.params, left, right, (row_major(node.outputs[0].spec),))
    few = machine.products.few_columns
    return product.rows.size > few and product.columns.size > few


def print_epilogue(step: Step, machine: Target) -> Native | None:
    """Returns the kernel of a step whose product is a `dot`."""
    product = _product_of(step, machine)
    if step.like is None:
        return _print(step, machine, product)

    def make(axes: Any, numbers: Numbers) -> Native:
        return _print(step, machine, Product(product.dtype, *axes), numbers)

    key = print_epilogue, machine, graph_key(step.graphs[0], False)
    return find_sized(key, product.axes, _product_of(step.like, machine).axes, make)


def _epilogue_of(step: Step, machine: Target) -> Epilogue:
    epilogue = Epilogue.of(step.graphs[0], machine)
    if epilogue is None:
        raise InternalError("with_epilogue: the sub-graph is no product with elementwise commands")
    return epilogue


def _product_of(step: Step, machine: Target) -> Product:
    epilogue = _epilogue_of(step, machine)
    more = epilogue.all_strides(step.inputs, step.outputs)
    first = more[len(step.inputs) - 2]
    return make_product(epilogue.product.params, step.inputs[0], step.inputs[1], (first, *more))


def _print(step: Step, machine: Target, product: Product, numbers: Numbers | None = None) -> Native:
    epilogue, product = _epilogue_of(step, machine), oriented_for_tiles(product)
    rows = product.rows._replace(more=tuple(map(int, product.rows.more)))  # kernels of their own finish rows
    product = replace(product, rows=rows, columns=product.columns.fixed)
    wide = product.dtype if dtypes.is_integer(product.dtype) else dtypes.accumulator(product.dtype)
    shape = shape_of(product, wide, machine, finished=True)
    if shape is None:
        raise InternalError("with_epilogue: the product cannot be cut into tiles")
    names = (*(f"%in{i}" for i in range(2, len(step.inputs))), *(f"%out{i}" for i in range(len(step.outputs))))
    printer = Printer(step, machine, numbers=numbers)
    print_tiles(printer, product, shape, _FusedFinish(epilogue, product, shape, names))
    return printer.native(light=shape.shared)


class _Known:
    """The kernels printed so far for a machine, by their expression and by where their operands lie."""

    def __init__(self, machine: Target) -> None:
        self._machine = machine

    def __call__(self, step: Step) -> Native | None:
        if step.like is not None:
            return print_epilogue(step, self._machine)
        places = tuple((view.spec.shape, view.strides) for view in (*step.inputs, *step.outputs))
        key = graph_key(step.graphs[0], True), places
        return PRINTED.find((self, key), lambda: print_epilogue(step, self._machine))


def _kernel(machine: Target) -> Kernel:
    return Kernel(CPU, run_by_graph, partial(_supports, machine), native=_Known(machine))


add_kernel("with_epilogue", KernelFactory(CPU, _kernel))
