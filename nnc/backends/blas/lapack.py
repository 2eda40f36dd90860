"""Factorisations and linear systems in compiled programs, by LAPACK.

Each matrix is copied in LAPACK's column-major order into the workspace, and given to the routine that NumPy calls, in the form that
NumPy gives it. So a matrix that is refused here, because a routine reports failure, is refused by the reference, too.

Denormal numbers are kept in these kernels, also in programs that take them as 0 elsewhere: threads of OpenBLAS do not take over the
caller's mode of floating-point arithmetic. Even in one thread, results of LAPACK in a mode that flushes follow no rule: of the 300
equal numbers 2**-140 on the diagonal of a float32 matrix, `qr` keeps 32 and `svd` one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from nnc.backends.blas.library import Lapack, lapack
from nnc.backends.cpu.kernels.products.cholesky import print_cholesky, row_bytes
from nnc.backends.factorizations import Specs, pays, supports
from nnc.backends.moves import copy_box, fill_row
from nnc.backends.native_runs import run_native
from nnc.backends.printer import Printer, in_blocks, over
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.errors import InternalError
from nnc.graph import Kernel, TensorSpec, add_kernel
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View

Params = Mapping[str, Any]
Pieces = Mapping[str, int]  # bytes of the parts of a workspace
_ALIGNMENT = 64


def found_lapack() -> Lapack:
    """Returns the library, of a kernel that is chosen only where there is one."""
    library = lapack()
    if library is None:
        raise InternalError("a kernel of LAPACK was chosen without the library")
    return library


class MatrixPrinter:
    """Writes the calls for one matrix after the other."""

    def __init__(self, step: Step, machine: Target, pieces: Pieces) -> None:
        self.printer = Printer(step, machine, workspace=True, refuses=True)
        self.code: Code = self.printer.main
        self.dtype: DType = step.inputs[0].spec.dtype
        self.symbols: dict[str, int] = {}
        self.at: dict[str, str] = {}
        offset = 0
        for name, nbytes in pieces.items():
            self.at[name] = self.code.offset("%workspace", offset)
            offset += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        self.views = (*step.inputs, *step.outputs[:-1])
        self.names = [f"%in{i}" for i in range(len(step.inputs))] + [f"%out{i}" for i in range(len(step.outputs) - 1)]
        self.info = self.code.room(8)
        for line in ("i64 @nnc_float_mode()", "void @nnc_set_float_mode(i64)", "void @nnc_keep_denormals()"):
            self.code.declare(f"declare {line}")
        self.mode = self.code.let("call i64 @nnc_float_mode()")
        self.code.line("call void @nnc_keep_denormals()")

    @contextmanager
    def matrices(self) -> Any:
        """Loops over the batch; yields where the inputs' and the outputs' matrices lie."""
        batch = self.views[0].spec.shape[:-2]
        axes = Axes(batch, tuple(view.strides[: len(batch)] for view in self.views)).merged()
        with over(self.code, axes, self.names) as pointers:
            yield pointers

    def native(self) -> Native:
        """Returns the finished kernel."""
        self.code.line(f"call void @nnc_set_float_mode(i64 {self.mode})")
        made = self.printer.native()
        return Native(made.text, self.symbols)

    def number(self, value: int) -> str:
        """Returns the address of an integer that a routine reads."""
        room = self.code.room(8)
        self.code.line(f"store i64 {value}, ptr {room}")
        return room

    def letter(self, value: str) -> str:
        """Returns the address of a letter that a routine reads."""
        room = self.code.room(1)
        self.code.line(f"store i8 {ord(value)}, ptr {room}")
        return room

    def call(self, routine: str, *arguments: str | int, letters: int = 0) -> Value:
        """Calls a routine and returns its status, which is its last argument; integers are numbers."""
        self.call_plain(routine, *arguments, self.info, letters=letters)
        return self.code.load(self.info, dtypes.int64)

    def call_plain(self, routine: str, *arguments: str | int, letters: int = 0) -> None:
        """Calls a routine that has no status."""
        symbol = found_lapack().symbol(routine, self.dtype)
        self.symbols[symbol] = found_lapack().address(symbol)
        pointers = [self.number(a) if isinstance(a, int) else a for a in arguments]
        kinds = ["ptr"] * len(pointers) + ["i64"] * letters
        self.code.declare(f"declare void @{symbol}({', '.join(kinds)})")
        given = [f"ptr {pointer}" for pointer in pointers] + ["i64 1"] * letters
        self.code.line(f"call void @{symbol}({', '.join(given)})")

    def refuse_if(self, condition: Value) -> None:
        """Refuses the kernel's input where a condition holds."""
        with self.code.when(condition):
            self.printer.refuse(self.code)

    def refuse_unless_done(self, info: Value) -> None:
        """Refuses the operands where a routine reported a failure."""
        self.refuse_if(self.code.compare("ne", info, self.code.integer(0)))

    def refuse_unless_finite(self, source: str, count: int) -> None:
        """Refuses the operands where one of so many numbers is NaN or infinite."""
        code = self.code
        total = code.slot(code.constant(0, self.dtype))
        with code.loop(0, count) as i:
            x = code.load(code.offset(source, code.mul(i, code.integer(self.dtype.itemsize))), self.dtype)
            code.write(total, code.fma(x, code.constant(0, self.dtype), code.read(total)))
        self.refuse_if(code.compare("uno", code.read(total), code.read(total)))

    def gather(self, view: View, source: str, target: str) -> None:
        """Copies a view's matrix into memory in column-major order."""
        spec, strides = self._matrix(view)
        copy_box(self.code, spec, source, strides, target, self._columns(spec))

    def scatter(self, view: View, source: str, target: str) -> None:
        """Copies a column-major matrix to where a view has its own."""
        spec, strides = self._matrix(view)
        copy_box(self.code, spec, source, self._columns(spec), target, strides)

    def vector(self, view: View, source: str, target: str) -> None:
        """Copies numbers to where a view has its last axis."""
        spec = TensorSpec(view.spec.shape[-1:], self.dtype)
        copy_box(self.code, spec, source, (self.dtype.itemsize,), target, view.strides[-1:])

    def hermitian(self, view: View, source: str, target: str, row_step: int) -> None:
        """Writes half the sum of a matrix and its transpose, with rows so many bytes apart."""
        code, n, size = self.code, view.spec.shape[-1], self.dtype.itemsize
        spec, (step, column_step) = self._matrix(view)
        copy_box(code, spec, source, (step, column_step), target, (size, row_step))
        with code.loop(0, n) as i:
            row = code.offset(source, code.mul(i, code.integer(step)))
            out = code.offset(target, code.mul(i, code.integer(row_step)))

            def add(j: Value, lanes: int) -> None:
                place = code.offset(out, code.mul(j, code.integer(size)))
                at = code.offset(row, code.mul(j, code.integer(column_step)))
                total = code.add(code.load(at, self.dtype, lanes), code.load(place, self.dtype, lanes))
                code.store(place, code.mul(total, code.like(total, 0.5)))

            in_blocks(code, 0, n, 64 // size if column_step == size else 0, add)

    def _matrix(self, view: View) -> tuple[TensorSpec, tuple[int, ...]]:
        return TensorSpec(view.spec.shape[-2:], self.dtype), view.strides[-2:]

    def _columns(self, spec: TensorSpec) -> tuple[int, int]:
        return self.dtype.itemsize, self.dtype.itemsize * spec.shape[0]


# -- commands: their workspace, and their calls -------------------------------------------------------------------------


def square_sizes(specs: Specs) -> tuple[int, int]:
    """Returns the rows of a matrix and the bytes of its elements."""
    return specs[0].shape[-1], specs[0].dtype.itemsize


def _cholesky_pieces(specs: Specs, params: Params) -> Pieces:
    n, _ = square_sizes(specs)
    return {"a": n * row_bytes(n, specs[0].dtype)}


def _cholesky(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    """Runs a printed kernel. Where that meets a pivot that is not positive, LAPACK decides, as in the reference."""
    (x, out), code, room = p.views, p.code, p.at["a"]
    n, size = x.spec.shape[-1], p.dtype.itemsize
    lower, apart = p.letter("L"), row_bytes(n, p.dtype)
    spec, strides = TensorSpec((n, n), p.dtype), out.strides[-2:]
    with p.matrices() as (source, target):
        p.hermitian(x, source, room, apart)
        failed = print_cholesky(code, room, n, p.dtype, p.printer.machine)
        copy_box(code, spec, room, (size, apart), target, strides)
        with code.when(failed):
            p.hermitian(x, source, room, n * size)
            p.refuse_unless_done(p.call("potrf", lower, n, room, n, letters=1))
            p.scatter(out, room, target)
        with code.loop(0, n) as i:
            row = code.offset(target, code.mul(i, code.integer(strides[0])))
            if strides[1] == size:
                fill_row(code, row, code.constant(0, p.dtype), code.add(i, code.integer(1)), n)
            else:
                with code.loop(code.add(i, code.integer(1)), n) as j:
                    code.store(code.offset(row, code.mul(j, code.integer(strides[1]))), code.constant(0, p.dtype))


def _solve_pieces(specs: Specs, params: Params) -> Pieces:
    n, size = square_sizes(specs)
    return {"a": n * n * size, "b": n * specs[1].shape[-1] * size, "pivots": 8 * n}


def _solve(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    a, b, out = p.views
    n, k = b.spec.shape[-2:]
    with p.matrices() as (matrix, right, target):
        p.gather(a, matrix, p.at["a"])
        p.gather(b, right, p.at["b"])
        p.refuse_unless_done(p.call("gesv", n, k, p.at["a"], n, p.at["pivots"], p.at["b"], n))
        p.scatter(out, p.at["b"], target)


def _det_pieces(specs: Specs, params: Params) -> Pieces:
    n, size = square_sizes(specs)
    return {"a": n * n * size, "pivots": 8 * n}


def _slogdet(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    with p.matrices() as (source, sign_at, log_at):
        sign, log = _sign_and_log(p, source)
        p.code.store(sign_at, sign)
        p.code.store(log_at, log)


def _det(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    with p.matrices() as (source, target):
        sign, log = _sign_and_log(p, source)
        p.code.store(target, p.code.mul(sign, p.code.intrinsic("exp", log)))


def _sign_and_log(p: MatrixPrinter, source: str) -> tuple[Value, Value]:
    """Returns the sign and the logarithm of the determinant, by LU; 0 and -inf for a singular matrix."""
    code, n = p.code, p.views[0].spec.shape[-1]
    p.gather(p.views[0], source, p.at["a"])
    info = p.call("getrf", n, n, p.at["a"], n, p.at["pivots"])
    one = code.constant(1, p.dtype)
    sign, log = code.slot(one), code.slot(code.constant(0, p.dtype))
    with code.loop(0, n) as i:
        element = code.load(code.offset(p.at["a"], code.mul(i, code.integer((n + 1) * p.dtype.itemsize))), p.dtype)
        pivot = code.load(code.offset(p.at["pivots"], code.mul(i, code.integer(8))), dtypes.int64)
        moved = code.compare("ne", pivot, code.add(i, code.integer(1)))  # LAPACK counts from 1
        negative = code.xor(moved, code.compare("lt", element, code.like(element, 0)))
        now = code.read(sign)
        code.write(sign, code.select(negative, code.neg(now), now))
        code.write(log, code.add(code.read(log), code.intrinsic("log", code.intrinsic("fabs", element))))
    singular = code.compare("gt", info, code.integer(0))
    nothing, never = code.constant(0, p.dtype), code.constant(-math.inf, p.dtype)
    return code.select(singular, nothing, code.read(sign)), code.select(singular, never, code.read(log))


def _qr_sizes(specs: Specs, params: Params) -> tuple[int, int, int, int]:
    """Rows, columns, the smaller of them, columns of Q."""
    m, n = specs[0].shape[-2:]
    return m, n, min(m, n), m if params.get("full_matrices", False) else min(m, n)


def _qr_pieces(specs: Specs, params: Params) -> Pieces:
    m, n, k, wide = _qr_sizes(specs, params)
    dtype = specs[0].dtype
    factor, _ = found_lapack().room("geqrf", dtype, (m, n, None, m, None))
    unpack, _ = found_lapack().room("orgqr", dtype, (m, wide, k, None, m, None))
    size = dtype.itemsize
    return {"a": m * max(n, wide) * size, "tau": k * size, "work": max(factor, unpack) * size}


def _qr(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    (x, q, r), code, size = p.views, p.code, p.dtype.itemsize
    m, n, k, wide = _qr_sizes((x.spec,), step.params)
    room = pieces["work"] // size
    with p.matrices() as (source, q_at, r_at):
        p.gather(x, source, p.at["a"])
        p.refuse_unless_done(p.call("geqrf", m, n, p.at["a"], m, p.at["tau"], p.at["work"], room))
        row_step, column_step = r.strides[-2:]
        with code.loop(0, r.spec.shape[-2]) as i, code.loop(0, n) as j:
            place = code.add(code.mul(j, code.integer(m * size)), code.mul(i, code.integer(size)))
            value = code.load(code.offset(p.at["a"], place), p.dtype)
            value = code.select(code.compare("le", i, j), value, code.like(value, 0))
            target = code.offset(r_at, code.mul(i, code.integer(row_step)))
            code.store(code.offset(target, code.mul(j, code.integer(column_step))), value)
        p.refuse_unless_done(p.call("orgqr", m, wide, k, p.at["a"], m, p.at["tau"], p.at["work"], room))
        p.scatter(q, p.at["a"], q_at)


def _eigh_pieces(specs: Specs, params: Params) -> Pieces:
    n, size = square_sizes(specs)
    elements, integers = found_lapack().room("syevd", specs[0].dtype, (b"V", b"L", n, None, n, None))
    return {"a": n * n * size, "w": n * size, "work": elements * size, "integers": integers * 8}


def _eigh(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    x, w, v = p.views
    n, size = x.spec.shape[-1], p.dtype.itemsize
    vectors, lower = p.letter("V"), p.letter("L")
    rooms = pieces["work"] // size, pieces["integers"] // 8
    with p.matrices() as (source, w_at, v_at):
        p.hermitian(x, source, p.at["a"], n * size)
        p.refuse_unless_finite(p.at["a"], n * n)
        info = p.call(
            "syevd", vectors, lower, n, p.at["a"], n, p.at["w"], p.at["work"], rooms[0], p.at["integers"], rooms[1], letters=2
        )  # fmt: skip
        p.refuse_unless_done(info)
        p.vector(w, p.at["w"], w_at)
        p.scatter(v, p.at["a"], v_at)


def _svd_sizes(specs: Specs, params: Params) -> tuple[int, int, int, int, int, str]:
    """Rows, columns, the smaller of them, columns of U, rows of Vᴴ, and LAPACK's letter."""
    m, n = specs[0].shape[-2:]
    k = min(m, n)
    return (m, n, k, m, n, "A") if params.get("full_matrices", False) else (m, n, k, k, k, "S")


def _svd_pieces(specs: Specs, params: Params) -> Pieces:
    m, n, k, left, right, job = _svd_sizes(specs, params)
    size = specs[0].dtype.itemsize
    arguments = (job.encode(), m, n, None, m, None, None, m, None, right)
    elements, _ = found_lapack().room("gesdd", specs[0].dtype, arguments)
    return {
        "a": m * n * size, "u": m * left * size, "s": k * size, "vt": right * n * size, "work": elements * size,
        "integers": 8 * k * 8,
    }  # fmt: skip


def _svd(p: MatrixPrinter, step: Step, pieces: Pieces) -> None:
    x, u, s, vt = p.views
    m, n, _, _, right, job = _svd_sizes((x.spec,), step.params)
    letter, room = p.letter(job), pieces["work"] // p.dtype.itemsize
    with p.matrices() as (source, u_at, s_at, vt_at):
        p.gather(x, source, p.at["a"])
        info = p.call(
            "gesdd", letter, m, n, p.at["a"], m, p.at["s"], p.at["u"], m, p.at["vt"], right, p.at["work"], room,
            p.at["integers"], letters=1,
        )  # fmt: skip
        p.refuse_unless_done(info)
        p.scatter(u, p.at["u"], u_at)
        p.vector(s, p.at["s"], s_at)
        p.scatter(vt, p.at["vt"], vt_at)


# -- kernels -----------------------------------------------------------------------------------------------------------

Calls = Callable[[MatrixPrinter, Step, Pieces], None]
Needs = Callable[[Specs, Params], Pieces]


def _supports(specs: Specs, params: Params, name: str) -> bool:
    return supports(specs, params) and not pays(name, specs) and lapack() is not None


def add_routines(name: str, needs: Needs, calls: Calls) -> None:
    """Adds a command's kernel: the parts of its workspace, and the function that writes its calls."""

    def workspace(specs: Specs, params: Params) -> int:
        return sum(-(-nbytes // _ALIGNMENT) * _ALIGNMENT for nbytes in needs(specs, params).values())

    def print_calls(step: Step, machine: Target) -> Native:
        pieces = needs(step.input_specs, step.params)
        printer = MatrixPrinter(step, machine, pieces)
        calls(printer, step, pieces)
        return printer.native()

    def make(machine: Target) -> Kernel:
        native = partial(print_calls, machine=machine)
        return Kernel(
            "blas", run_native(native, name), partial(_supports, name=name), workspace=workspace, native=native
        )

    add_kernel(name, KernelFactory("blas", make))


add_routines("cholesky", _cholesky_pieces, _cholesky)
add_routines("solve", _solve_pieces, _solve)
add_routines("det", _det_pieces, _det)
add_routines("slogdet", _det_pieces, _slogdet)
add_routines("qr", _qr_pieces, _qr)
add_routines("eigh", _eigh_pieces, _eigh)
add_routines("svd", _svd_pieces, _svd)
