"""Printed kernels that move elements: their common functions, parts that run in threads, and loops over axes.

Such kernels see elements as words of 1, 2, 4 or 8 bytes, so that they serve every dtype: a complex128 is two words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from nnc.backends.native_runs import run_native
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.device import CPU
from nnc.graph import Kernel, TensorSpec, add_kernel
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.axes import Axes, Shape
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native, Remembered
from nnc.lower.kernels.sizes import Numbers, derived, find_sized, is_number
from nnc.lower.plan.stages import Step, View

Bound = Value | int
Body = Callable[[Code, Bound, Bound], None]
Part = tuple[int, Bound, Bound]  # of a loop over axes: an axis, and the positions of it to visit


def add_native(
    name: str,
    native: Callable[[Step, Target], Native | None],
    supports: Callable[..., bool] = lambda specs, params: True,
    workspace: Callable[..., int] = lambda specs, params, machine: 0,
    priority: int = 10,
    sized: bool = False,
) -> None:
    """Registers a printed kernel, which is another one for each machine. A `sized` one takes sizes of views as numbers."""

    def make(machine: Target) -> Kernel:
        def made(step: Step) -> Native | None:
            if not sized:
                return native(step, machine)
            return sized_native((name, machine), step, lambda step: native(step, machine))

        return Kernel(
            CPU, run_native(made, name), supports, priority, native=Remembered(made, sized),
            workspace=lambda specs, params: workspace(specs, params, machine),
        )  # fmt: skip

    add_kernel(name, KernelFactory(CPU, make, priority))


class Printer:
    """The functions of one kernel that is being printed for a machine.

    `main` is the kernel. Its pointers are %in0, …, %out0, …; with `workspace` the last output is called %workspace. With
    `refuses`, `refuse` makes it return 1 in the end. With a `length`, a size in which kernels of one text differ, `length` is its
    register. `numbers` are further such sizes.
    """

    def __init__(
        self,
        step: Step,
        machine: Target,
        *,
        workspace: bool = False,
        refuses: bool = False,
        length: int | None = None,
        numbers: Numbers | None = None,
    ) -> None:
        self.machine = machine
        self._sizes = numbers or numbers_of(step)
        self.length = Value("%length", dtypes.int64)
        self._numbers = () if length is None else (length,)
        names = [f"in{i}" for i in range(len(step.inputs))] + [f"out{i}" for i in range(len(step.outputs))]
        if workspace:
            names[-1] = "workspace"
        self.main = Code("KERNEL", [*(("ptr", name) for name in names), *(("i64", "length") for _ in self._numbers)])
        self._shared = [f"%{name}" for name in names]
        self._functions: list[Code] = []
        self._called: dict[str, Native] = {}
        self._refuses = refuses
        if refuses:
            self.share("flag", self.main.room(8))
            self.main.line("store i64 0, ptr %flag")

    def share(self, name: str, pointer: str) -> str:
        """Names a pointer of `main` so that parts can use it, too."""
        self.main.line(f"%{name} = getelementptr i8, ptr {pointer}, i64 0")
        self._shared.append(f"%{name}")
        return f"%{name}"

    def refuse(self, code: Code) -> None:
        """Notes that an input is refused; the kernel may go on."""
        code.line("store atomic i64 1, ptr %flag monotonic, align 8")

    def parts(self, count: Bound, grain: int, body: Body) -> None:
        """Runs `body(code, begin, end)` on parts that together cover 0..count, in threads where `count` is more than `grain`.

        The body may be printed into a function of its own; it names pointers by the results of `share`.
        """
        if isinstance(count, int) and count <= grain:
            if count > 0:
                body(self.main, 0, count)
            return
        code = Code(
            f"KERNEL.part{len(self._functions)}", [("ptr", "args"), ("i64", "begin"), ("i64", "end")], "internal void"
        )
        shared = [f"ptr {name}" for name in self._shared]
        for i, name in enumerate(self._shared):
            code.line(f"{name} = load ptr, ptr {code.offset('%args', 8 * i)}")
        numbers = code.in_front()
        body(code, Value("%begin", dtypes.int64), Value("%end", dtypes.int64))
        code.ret()
        self._functions.append(code)
        numbers += self._sizes.loads("%args", len(shared))
        shared += [f"{kind} %{name}" for kind, name in self._sizes.parameters]
        room = self.main.room(8 * len(shared))
        for i, typed in enumerate(shared):
            self.main.line(f"store {typed}, ptr {self.main.offset(room, 8 * i)}")
        self.main.declare("declare void @nnc_parallel_for(ptr, ptr, i64, i64)")
        counted = self.main.integer(count).typed
        self.main.line(f"call void @nnc_parallel_for(ptr @{code.name}, ptr {room}, {counted}, i64 {grain})")

    def along(self, axes: Axes, nbytes: int, body: Callable[[Code, Part], None]) -> None:
        """Runs `body(code, part)` on parts of the longest axis, in threads where so many bytes are moved in all."""
        axis = longest(axes.shape)
        count = axes.shape[axis] if axis >= 0 else 1
        grain = grain_of(count, nbytes, self.machine)
        self.parts(count if axes.size else 0, grain, lambda code, begin, end: body(code, (axis, begin, end)))

    def add(self, code: Code) -> None:
        """Adds a finished function to the kernel."""
        self._functions.append(code)

    def call(self, code: Code, native: Native, *operands: str | Bound) -> None:
        """Calls another kernel with pointers and i64s; it must not refuse them."""
        typed = [f"ptr {x}" if isinstance(x, str) else code.integer(x).typed for x in operands]
        code.declare(f"declare i64 @{native.name}({', '.join(text.split(' ')[0] for text in typed)})")
        code.line(f"call i64 @{native.name}({', '.join(typed)})")
        self._called[native.name] = native

    def native(self, *, inline: bool = False, light: bool = False) -> Native:
        """Returns the finished kernel; see `Native`."""
        result = self.main.let("load atomic i64, ptr %flag monotonic, align 8") if self._refuses else "0"
        self.main.ret(Value(result, dtypes.int64))
        self.main.parameters += self._sizes.parameters
        functions = [*self._functions, self.main]
        declared = sorted({line for code in functions for line in code.declarations})
        text = "\n".join([*(code.text() for code in functions), *declared, ""])
        numbers = (*self._numbers, *self._sizes.printed)
        return Native(text, inline=inline, numbers=numbers, light=light, calls=tuple(self._called.values()))


def load_parts(code: Code, pointer: str, real: DType, lanes: int) -> tuple[Value, Value]:
    """Reads neighbouring complex numbers; returns real and imaginary parts."""
    if lanes:
        both = code.load(pointer, real, 2 * lanes)
        return code.shuffle(both, range(0, 2 * lanes, 2)), code.shuffle(both, range(1, 2 * lanes, 2))
    return code.load(pointer, real), code.load(code.offset(pointer, real.itemsize), real)


def store_parts(code: Code, pointer: str, real: Value, imaginary: Value) -> None:
    """Writes neighbouring complex numbers."""
    lanes = real.lanes
    if lanes:
        code.store(pointer, code.shuffle(real, [k for i in range(lanes) for k in (i, lanes + i)], imaginary))
        return
    code.store(pointer, real)
    code.store(code.offset(pointer, real.dtype.itemsize), imaginary)


def constant_bytes(code: Code, name: str, data: bytes) -> str:
    """Declares a constant of the kernel, and returns its pointer."""
    text = "".join([f"\\{byte:02X}" for byte in data])
    code.declare(f'@KERNEL.{name} = private unnamed_addr constant [{len(data)} x i8] c"{text}", align 64')
    return f"@KERNEL.{name}"


# -- axes -----------------------------------------------------------------------------------------------------------------


def longest(shape: Shape) -> int:
    """Returns the axis of most positions, the first of equal ones; -1 where there is none."""
    return shape.index(max(shape)) if shape else -1


@contextmanager
def over(code: Code, axes: Axes, pointers: Sequence[str], part: Part | None = None) -> Iterator[list[str]]:
    """Loops over all positions of `axes`, or a part of them; yields the operands' pointers at each."""
    with ExitStack() as stack:
        moved = list(pointers)
        for axis, n in enumerate(axes.shape):
            begin, end = part[1:] if part is not None and part[0] == axis else (0, n)
            i = stack.enter_context(code.loop(begin, end))
            moved = [
                code.offset(pointer, code.mul(i, code.integer(strides[axis]))) if strides[axis] else pointer
                for pointer, strides in zip(moved, axes.strides, strict=True)
            ]
        yield moved


def over_vectors(
    code: Code, axes: Axes, pointers: Sequence[str], steps: Sequence[int], part: Part | None, lanes: int,
    body: Callable[[list[str], int], None],
) -> None:  # fmt: skip
    """Runs `body(pointers, lanes)` for vectors and single positions (0 lanes) of the last axis, where operands move on it by these
    steps; elsewhere for single positions alone.
    """
    last = len(axes.shape) - 1
    if last < 0 or [strides[last] for strides in axes.strides] != list(steps):
        with over(code, axes, pointers, part) as moved:
            body(moved, 0)
        return
    begin, end = part[1:] if part is not None and part[0] == last else (0, axes.shape[last])
    with over(code, axes.without(last), pointers, part) as rows:

        def block(i: Value, lanes: int) -> None:
            pairs = zip(rows, steps, strict=True)
            body([code.offset(row, code.mul(i, code.integer(step))) for row, step in pairs], lanes)

        in_blocks(code, begin, end, lanes, block)


@contextmanager
def looping(
    code: Code, first: Value, goes_on: Callable[[Value], Value], following: Callable[[Value], Value]
) -> Iterator[Value]:
    """The block runs for i = first, following(first), … while `goes_on(i)`."""
    slot = code.slot(first)
    test, body, done = code.label("test"), code.label("body"), code.label("done")
    code.jump(test)
    code.place(test)
    i = code.read(slot)
    code.branch(goes_on(i), body, done)
    code.place(body)
    yield i
    code.write(slot, following(i))
    code.jump(test)
    code.place(done)


def times(code: Code, x: Bound, factor: Bound) -> Bound:
    """x · factor, folded where known."""
    if not isinstance(factor, Value) and factor == 1:
        return x
    if not isinstance(x, Value):
        return times(code, factor, x) if isinstance(factor, Value) else x * factor
    return code.mul(x, code.integer(factor))


def plus(code: Code, x: Bound, y: Bound) -> Bound:
    """x + y, folded where known."""
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    return code.add(code.integer(x), code.integer(y))


def minus(code: Code, x: Bound, y: Bound) -> Bound:
    """x - y, folded where known."""
    if not isinstance(x, Value) and not isinstance(y, Value):
        return x - y
    return x if not isinstance(y, Value) and y == 0 else code.sub(code.integer(x), code.integer(y))


def in_blocks(code: Code, begin: Bound, end: Bound, lanes: int, body: Callable[[Value, int], None]) -> None:
    """Runs `body(i, lanes)` for full vectors of positions from `begin` on, then `body(i, 0)` for each position that is left; with 0
    lanes, for each position alone.
    """
    if not lanes:
        middle: Bound = begin
    elif isinstance(begin, int) and isinstance(end, int):
        middle = begin + (end - begin) // lanes * lanes
    else:
        count = code.integer(minus(code, end, begin))
        middle = code.add(code.integer(begin), code.and_(count, code.integer(-lanes)))
    if lanes and not (isinstance(middle, int) and middle == begin):
        with code.loop(begin, middle, lanes) as i:
            body(i, lanes)
    if not (isinstance(middle, int) and middle == end):
        with code.loop(middle, end) as i:
            body(i, 0)


def grain_of(count: int, nbytes: int, machine: Target) -> int:
    """Returns the least number of positions for a thread, where `count` of them move so many bytes."""
    return derived(_grain_of, count, nbytes, machine.threads.moved_part_bytes)


def _grain_of(count: int, nbytes: int, least: int) -> int:
    return max(1, math.ceil(count * least / max(nbytes, 1)))


# -- steps whose operands have numbers for sizes: code that takes sizes from views need not know ------------------------


def sized_native(key: Any, step: Step, make: Callable[[Step], Native | None]) -> Native | None:
    """Returns the kernel of a step, which takes as numbers the sizes and strides of operands that differ in the step `like` it.

    Args:
        key: tells apart all that a text depends on beside the step.
        make: prints the kernel of a step with numbers.
    """
    if step.like is None or len(step.like.inputs) != len(step.inputs):
        return make(step)
    views = (*step.inputs, *step.outputs)

    def made(sized: tuple[Any, ...], numbers: Numbers) -> Native | None:
        given = [_view(view, *sizes) for view, sizes in zip(views, sized, strict=True)]
        at = len(step.inputs)
        return make(replace(step, inputs=tuple(given[:at]), outputs=tuple(given[at:]), like=None))

    params = repr(tuple(step.params.items()))  # repr tells 0.0 from -0.0
    kinds = tuple([(view.spec.dtype, view.spec.layout) for view in views])
    others = _sizes((*step.like.inputs, *step.like.outputs))
    return find_sized((key, params, len(step.inputs), kinds), _sizes(views), others, made)


def _sizes(views: Sequence[View]) -> tuple[Any, ...]:
    return tuple([(view.spec.shape, view.strides) for view in views])


def _view(view: View, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """Returns a view with other sizes, which may be numbers. Specs with numbers are none of those that are kept."""
    if not any(map(is_number, (*shape, *strides))):
        return view
    spec: Any = object.__new__(TensorSpec)
    size = math.prod(shape)
    fields = (shape, view.spec.dtype, view.spec.layout, len(shape), size, size * view.spec.dtype.itemsize)
    for name, value in zip(TensorSpec.__slots__, fields, strict=False):
        object.__setattr__(spec, name, value)
    return replace(view, spec=spec, strides=strides)


def fixed_step(step: Step) -> Step:
    """Returns a step with integers where the sizes of its operands are numbers."""
    inputs, outputs = (
        tuple([replace(view, spec=view.spec.update(), strides=tuple(map(int, view.strides))) for view in views])
        for views in (step.inputs, step.outputs)
    )
    return replace(step, inputs=inputs, outputs=outputs)


def numbers_of(step: Step) -> Numbers:
    """Returns the numbers among the sizes of a step's operands."""
    for view in (*step.inputs, *step.outputs):
        for x in (*view.spec.shape, *view.strides):
            if is_number(x):
                return x.home
    return Numbers()
