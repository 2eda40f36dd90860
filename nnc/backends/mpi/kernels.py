"""Kernels of collectives: MPI's functions, called from compiled programs by their addresses, else from Python through mpi4py.

Elements are moved as bytes. Sums are MPI's where it has the dtype, extrema where there is no NaN. MPI knows neither float16 nor
bfloat16, and leaves the maximum of NaN open: of these, all values are gathered and joined here, sums in float32 and rounded once,
in the order of the places.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnc.backends.mpi.board import ENTERED, LEFT, SITE, Board, Site
from nnc.backends.mpi.world import communicator, known_world
from nnc.base import dtypes
from nnc.base.machine import address_of
from nnc.commands import collective
from nnc.device import CPU
from nnc.graph import Command, Kernel, TensorSpec, add_kernel
from nnc.graph.registry import effect
from nnc.lower.kernels.native import KERNEL, Native
from nnc.lower.plan.stages import NDArray, Step, is_contiguous

BACKEND = "mpi"
Params = Mapping[str, Any]
Arrays = Sequence[NDArray]
_MOST = 2**31 - 1  # elements or bytes of one call: MPI counts them in 32 bits
_STATE = 64  # bytes for an MPI_Status, which has 20 to 32
_BOARD = "nnc_board"  # the name of the first number of this process on the board
_NAMES = {
    "int8": "INT8_T", "int16": "INT16_T", "int32": "INT32_T", "int64": "INT64_T", "uint8": "UINT8_T", "uint16": "UINT16_T",
    "uint32": "UINT32_T", "uint64": "UINT64_T", "float32": "FLOAT", "float64": "DOUBLE", "complex64": "C_FLOAT_COMPLEX",
    "complex128": "C_DOUBLE_COMPLEX",
}  # fmt: skip


def is_of_processes(specs: tuple[TensorSpec, ...], params: Params) -> bool:
    """Whether a collective joins values of processes, not of rows."""
    return bool(params.get("stride", 0))


def _group(params: Params) -> Any:
    return communicator(params["size"], params["stride"])


def _bytes(x: NDArray) -> NDArray:
    """Returns the bytes of an array whose elements lie side by side."""
    return x.reshape(-1).view(np.uint8)


def _contiguous(x: NDArray) -> NDArray:
    return np.ascontiguousarray(x).reshape(x.shape)


def _write(out: NDArray, fill: Callable[[NDArray], None]) -> None:
    """Fills an output, by way of a copy where its elements do not lie side by side."""
    made = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    fill(made)
    if made is not out:
        out[...] = made


def _gathered(x: NDArray, params: Params) -> NDArray:
    """Returns the values of all places."""
    rows = np.empty((params["size"], *x.shape), x.dtype)
    _group(params).Allgather(_bytes(_contiguous(x)), _bytes(rows))
    return rows


# -- from Python -------------------------------------------------------------------------------------------------------


def _total(name: str, rows: Callable[[NDArray, Params], NDArray]) -> Callable[[Arrays, Arrays, Params], None]:
    """Sums by a method of MPI's communicator; of dtypes that MPI does not know, the `rows` of all places are summed here."""

    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        x = _contiguous(inputs[0])
        if x.dtype.name in _NAMES:
            kind = getattr(known_world().mpi, _NAMES[x.dtype.name])
            _write(outputs[0], lambda out: getattr(_group(params), name)([x, kind], [out, kind]))
        else:
            gathered = rows(x, params)
            outputs[0][...] = np.add.reduce(gathered, axis=0, dtype=np.float32).astype(gathered.dtype)

    return run


def _extremum(joined: Any) -> Callable[[Arrays, Arrays, Params], None]:
    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        outputs[0][...] = joined.reduce(_gathered(inputs[0], params), axis=0)

    return run


def _run_all_gather(inputs: Arrays, outputs: Arrays, params: Params) -> None:
    x = _contiguous(inputs[0])
    _write(outputs[0], lambda out: _group(params).Allgather(_bytes(x), _bytes(out)))


def _exchanged(x: NDArray, params: Params) -> NDArray:
    """Returns the parts of all places for this one."""
    parts = np.empty(x.shape, x.dtype)
    _group(params).Alltoall(_bytes(_contiguous(x)), _bytes(parts))
    return parts


def _run_all_to_all(inputs: Arrays, outputs: Arrays, params: Params) -> None:
    outputs[0][...] = _exchanged(inputs[0], params)


def _run_ppermute(inputs: Arrays, outputs: Arrays, params: Params) -> None:
    group, x = _group(params), _contiguous(inputs[0])
    source, target = partners(params, group.rank)
    none = known_world().mpi.PROC_NULL

    def fill(out: NDArray) -> None:
        if source is None:
            out[...] = 0
        group.Sendrecv(
            _bytes(x), none if target is None else target, 0, _bytes(out), none if source is None else source, 0
        )

    _write(outputs[0], fill)


def partners(params: Params, place: int) -> tuple[int | None, int | None]:
    """Returns the place from which one gets a value, and the place to which its value goes."""
    sources = {target: source for source, target in params["perm"]}
    return sources.get(place), dict(params["perm"]).get(place)


def _run_process_index(inputs: Arrays, outputs: Arrays, params: Params) -> None:
    outputs[0][...] = _group(params).rank


# -- from compiled programs --------------------------------------------------------------------------------------------


class _MpiCall:
    """The text of a kernel that calls one function of MPI. Handles are ints in MPICH, pointers in Open MPI."""

    def __init__(self, name: str, step: Step) -> None:
        self._name, self._step = name, step
        self._mpi = known_world().mpi
        self.group = _group(step.params)

    def handle(self, value: Any) -> str:
        """Returns an argument of the call: a communicator, or MPI's datatype or operation of this name."""
        value = getattr(self._mpi, value) if isinstance(value, str) else value
        number: int = self._mpi._handleof(value)
        if self._mpi._sizeof(value) == ctypes.sizeof(ctypes.c_int):
            return f"i32 {ctypes.c_int32(number).value}"
        return f"ptr inttoptr (i64 {number} to ptr)"

    def place(self, number: int | None) -> str:
        """Returns the argument for a place along the axis; None for none."""
        return f"i32 {self._mpi.PROC_NULL if number is None else number}"

    def native(self, *arguments: str, before: str = "") -> Native | None:
        """Returns the kernel, which notes on the board that it waits; None where Python cannot find the function's address.

        Args:
            arguments: the arguments of MPI's function.
            before: text that computes values for them.
        """
        address, board = address_of(self._mpi.__file__, self._name), known_world().board
        if address is None:
            return None
        if board is not None and effect[self._step.command] == "collective":
            return self._noting(address, board, arguments, before)
        return Native(self._text(arguments, before=before), {self._name: address})

    def _noting(self, address: int, board: Board, arguments: Sequence[str], before: str) -> Native:
        """Returns the kernel, which counts its calls on the board, and notes the collective before each."""
        params, line = self._step.params, self._step.source
        site = Site(self._step.command.name, params["size"], params["stride"], "" if line is None else str(line))
        before += (
            f"  %at = getelementptr i64, ptr @{_BOARD}, i64 {SITE}\n"
            "  store volatile i64 %site, ptr %at\n" + _count("entered", ENTERED)
        )
        text = f"@{_BOARD} = external global i64\n" + self._text(arguments, ", i64 %site", before, _count("left", LEFT))
        return Native(text, {self._name: address, _BOARD: board.address}, numbers=(board.add(site),))

    def _text(self, arguments: Sequence[str], numbers: str = "", before: str = "", after: str = "") -> str:
        names = [f"%in{i}" for i in range(len(self._step.inputs))] + ["%out"]
        kinds = ", ".join(argument.rsplit(" ", 1)[0] if "(" not in argument else "ptr" for argument in arguments)
        return (
            f"declare i32 @{self._name}({kinds})\ndeclare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
            f"define i64 {KERNEL}({', '.join(f'ptr {name}' for name in names)}{numbers}) {{\n{before}"
            f"  %status = call i32 @{self._name}({', '.join(arguments)})\n{after}"
            "  %result = sext i32 %status to i64\n"
            "  ret i64 %result\n"
            "}\n"
        )


def _count(name: str, number: int) -> str:
    """Returns the text that adds one to a number of the board."""
    return (
        f"  %{name}_at = getelementptr i64, ptr @{_BOARD}, i64 {number}\n"
        f"  %{name} = load volatile i64, ptr %{name}_at\n"
        f"  %{name}_next = add i64 %{name}, 1\n"
        f"  store volatile i64 %{name}_next, ptr %{name}_at\n"
    )


def _fits(step: Step) -> bool:
    views = (*step.inputs[:1], *step.outputs)
    return all(is_contiguous(view.spec, view.strides) and view.spec.nbytes <= _MOST for view in views)


def _reducing(name: str, operation: str = "SUM") -> Callable[[Step], Native | None]:
    """Returns the kernel of a function that reduces as many elements as the result has."""

    def native(step: Step) -> Native | None:
        spec = step.outputs[0].spec
        dtype = np.dtype(np.uint8) if dtypes.is_bool(spec.dtype) else spec.dtype  # True is the larger one
        if not _fits(step) or dtype.name not in _NAMES or (operation != "SUM" and dtypes.is_inexact(dtype)):
            return None
        call = _MpiCall(name, step)
        handles = map(call.handle, (_NAMES[dtype.name], operation, call.group))
        return call.native("ptr %in0", "ptr %out", f"i32 {spec.size}", *handles)

    return native


def _permuting(step: Step) -> Native | None:
    """Returns the kernel that sends a value to one place and receives that of another one, or zeros."""
    if not _fits(step):
        return None
    call, spec = _MpiCall("MPI_Sendrecv", step), step.outputs[0].spec
    nbytes = spec.nbytes
    source, target = partners(step.params, call.group.rank)
    before = f"  %state = alloca [{_STATE} x i8], align 8\n"
    if source is None:
        before += f"  call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 {nbytes}, i1 false)\n"
    byte, group = call.handle("BYTE"), call.handle(call.group)
    sent = "ptr %in0", f"i32 {nbytes}", byte, call.place(target), "i32 0"
    received = "ptr %out", f"i32 {nbytes}", byte, call.place(source), "i32 0"
    return call.native(*sent, *received, group, "ptr %state", before=before)


def _moving(name: str, part: Callable[[Step], TensorSpec]) -> Callable[[Step], Native | None]:
    """Returns the kernel of a function that moves `part`, the value of one place, between each two."""

    def native(step: Step) -> Native | None:
        if not _fits(step):
            return None
        call, spec = _MpiCall(name, step), part(step)
        count = f"i32 {spec.nbytes}", call.handle("BYTE")
        return call.native("ptr %in0", *count, "ptr %out", *count, call.handle(call.group))

    return native


def _row(step: Step) -> TensorSpec:
    spec = step.inputs[0].spec
    return spec.update(shape=spec.shape[1:])


def _native_process_index(step: Step) -> Native | None:
    call = _MpiCall("MPI_Comm_rank", step)
    return call.native(call.handle(call.group), "ptr %out")


def _add(command: Command, run: Callable[..., None], native: Callable[[Step], Native | None] | None = None) -> None:
    add_kernel(command, Kernel(BACKEND, run, is_of_processes, priority=50, native=native, device=CPU))


def _noting(name: str, run: Callable[..., None]) -> Callable[..., None]:
    """Returns a function that notes on the board that it waits for other processes."""

    def noting(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        with known_world().waiting(Site(name, params["size"], params["stride"])):
            run(inputs, outputs, params)

    return noting


def _add_collective(
    command: Command, run: Callable[..., None], native: Callable[[Step], Native | None] | None = None
) -> None:
    _add(command, _noting(command.name, run), native)


_add_collective(collective.psum, _total("Allreduce", _gathered), _reducing("MPI_Allreduce"))
_add_collective(collective.pmax, _extremum(np.maximum), _reducing("MPI_Allreduce", "MAX"))
_add_collective(collective.pmin, _extremum(np.minimum), _reducing("MPI_Allreduce", "MIN"))
_add_collective(collective.all_gather, _run_all_gather, _moving("MPI_Allgather", lambda step: step.inputs[0].spec))
_add_collective(collective.all_gather_same, _run_all_gather, _moving("MPI_Allgather", lambda step: step.inputs[0].spec))
_add_collective(
    collective.psum_scatter, _total("Reduce_scatter_block", _exchanged), _reducing("MPI_Reduce_scatter_block")
)
_add_collective(collective.all_to_all, _run_all_to_all, _moving("MPI_Alltoall", _row))
_add_collective(collective.ppermute, _run_ppermute, _permuting)
_add(collective.process_index, _run_process_index, _native_process_index)
