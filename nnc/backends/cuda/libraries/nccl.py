"""Collectives between processes on CUDA's devices, by NCCL through CuPy; MPI hands round the identifiers of its communicators.

Each process has a device of its own. Calls are queued in the program's stream, as bytes where elements are only moved. NCCL
sums float16 and bfloat16 in these dtypes; it has no sums of 16-bit integers, and leaves the maximum of NaN open: of these, all
values are gathered and joined by CuPy. Never run on a device: tests compare the calls with those that a recording stand-in
expects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nnc.backends.cuda.libraries.cupy_arrays import array_of, bits_of, narrowed, widened
from nnc.backends.mpi.board import Site
from nnc.backends.mpi.kernels import is_of_processes, partners
from nnc.backends.mpi.world import communicator, known_world
from nnc.base import dtypes
from nnc.commands import collective
from nnc.device import CUDA
from nnc.errors import UnsupportedError, user_error
from nnc.graph import Command, Kernel, add_kernel, find_kernel
from nnc.graph.spec import spec_of
from nnc.lower.plan.stages import Step, View, is_contiguous

BACKEND = "NCCL"
Params = Mapping[str, Any]
_BYTE = 1  # NCCL's number of uint8
_KINDS = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8,
    "bfloat16": 9, "bool": 1, "complex64": 7, "complex128": 8,
}  # fmt: skip
_SUM, _LARGEST, _SMALLEST = 0, 2, 3  # NCCL's numbers of operations


@dataclass(frozen=True)
class Collective:
    """The processes along an axis, and NCCL's communicator for their devices.

    Args:
        nccl: CuPy's module.
        communicator: NCCL's communicator.
        rank: the number of this process along the axis.
        size: the number of processes along the axis.
    """

    nccl: Any
    device: Any
    communicator: Any
    rank: int
    size: int

    @staticmethod
    def new(device: Any, size: int, stride: int) -> Collective:
        """Makes the group for an axis of a mesh; all processes of the axis do so together.

        Raises:
            UnsupportedError: CuPy was built without NCCL.
        """
        nccl = getattr(device.cupy.cuda, "nccl", None)
        if nccl is None or not getattr(nccl, "available", True):
            problem = "arrays of several processes are joined by NCCL, which CuPy does not find."
            fix = "install NVIDIA's library, for example with pip install nvidia-nccl-cu12 or nvidia-nccl-cu13."
            raise user_error(UnsupportedError, device.name, problem, fix=fix)
        processes = communicator(size, stride)
        with known_world().waiting(Site("the first collective of devices over an axis", size, stride)):
            own = processes.rank
            identifier = processes.bcast(nccl.get_unique_id() if own == 0 else None)
            with device.current():
                return Collective(nccl, device, nccl.NcclCommunicator(size, identifier, own), own, size)

    def exchange(
        self, x: int, out: int, nbytes: int, sources: Mapping[int, int], targets: Mapping[int, int], stream: int
    ) -> None:
        """Queues messages of `nbytes`: to each place, the part of `x` at `targets[place]`; from it, the part at
        `sources[place]`.
        """
        self.nccl.groupStart()
        for place, at in targets.items():
            self.communicator.send(x + at * nbytes, nbytes, _BYTE, place, stream)
        for place, at in sources.items():
            self.communicator.recv(out + at * nbytes, nbytes, _BYTE, place, stream)
        self.nccl.groupEnd()


def _groups(device: Any) -> dict[tuple[int, int], Collective]:
    """Returns the groups of a device, by size and stride of their axes."""
    return {}


def group_of(device: Any, params: Params) -> Collective:
    """Returns the group for a collective."""
    known = device.library(_groups)
    key = params["size"], params["stride"]
    if key not in known:
        known[key] = Collective.new(device, *key)
    found: Collective = known[key]
    return found


# -- the calls ---------------------------------------------------------------------------------------------------------

Call = Callable[[Collective, Step, int, int, int], None]  # (group, step, addresses of operand and result, stream)


def _count(view: View) -> int:
    """NCCL's number of elements: complex ones are two each."""
    return view.spec.size * (2 if dtypes.is_complex(view.spec.dtype) else 1)


def _sum(group: Collective, step: Step, x: int, out: int, stream: int) -> None:
    (view, *_), dtype = step.inputs, step.inputs[0].spec.dtype
    if dtype.name in _KINDS:
        group.communicator.allReduce(x, out, _count(view), _KINDS[dtype.name], _SUM, stream)
    else:
        _join(group, view, x, out, stream, lambda rows: rows.sum(axis=0, dtype=dtype))


def _sum_of_part(group: Collective, step: Step, x: int, out: int, stream: int) -> None:
    view, dtype = step.outputs[0], step.outputs[0].spec.dtype
    if dtype.name in _KINDS:
        group.communicator.reduceScatter(x, out, _count(view), _KINDS[dtype.name], _SUM, stream)
    else:
        whole = step.inputs[0]
        _join(group, whole, x, out, stream, lambda rows: rows.sum(axis=0, dtype=dtype)[group.rank], view)


def _extremum(operation: int, name: str) -> Call:
    def call(group: Collective, step: Step, x: int, out: int, stream: int) -> None:
        view, dtype = step.inputs[0], step.inputs[0].spec.dtype
        if dtype.name in _KINDS and not dtypes.is_inexact(dtype):
            group.communicator.allReduce(x, out, _count(view), _KINDS[dtype.name], operation, stream)
        else:
            _join(group, view, x, out, stream, lambda rows: getattr(rows, name)(axis=0))

    return call


def _join(
    group: Collective,
    view: View,
    x: int,
    out: int,
    stream: int,
    reduce: Callable[[Any], Any],
    result: View | None = None,
) -> None:
    """Gathers the values of all places, and joins them by a function of CuPy's arrays."""
    device, spec = group.device, view.spec
    rows = device.cupy.empty((group.size, spec.nbytes), "u1")
    group.communicator.allGather(x, rows.data.ptr, spec.nbytes, _BYTE, stream)
    kind = bits_of(view)
    values = device.view(rows.data.ptr, (group.size, *spec.shape), kind)
    shape = spec.shape if result is None else result.spec.shape
    device.view(out, shape, kind)[...] = narrowed(reduce(widened(values, spec.dtype)), spec.dtype)


def _gather(group: Collective, step: Step, x: int, out: int, stream: int) -> None:
    group.communicator.allGather(x, out, step.inputs[0].spec.nbytes, _BYTE, stream)


def _exchange(group: Collective, step: Step, x: int, out: int, stream: int) -> None:
    parts = {place: place for place in range(group.size)}
    group.exchange(x, out, step.inputs[0].spec.nbytes // group.size, parts, parts, stream)


def _permute(group: Collective, step: Step, x: int, out: int, stream: int) -> None:
    source, target = partners(step.params, group.rank)
    nbytes = step.inputs[0].spec.nbytes
    if source is None:
        group.device.view(out, (nbytes,), "u1")[...] = 0
    given, sent = ({} if place is None else {place: 0} for place in (source, target))
    group.exchange(x, out, nbytes, given, sent, stream)


def _number(group: Collective, step: Step, x: int, out: int, stream: int) -> None:
    group.device.view(out, (), step.outputs[0].spec.dtype)[...] = group.rank


# -- steps -------------------------------------------------------------------------------------------------------------


def _queue_call(step: Step, device: Any, call: Call, addresses: Sequence[int], stream: int) -> None:
    """Queues a call, by way of copies where elements of the operand or the result do not lie side by side."""
    group, out = group_of(device, step.params), step.outputs[0]
    if not all(view.spec.size for view in (*step.inputs[:1], out)):
        return
    with device.arrays_in(stream):
        operand = _contiguous(device, step.inputs[0], addresses[0]) if step.inputs else None
        result = array_of(device, out, addresses[len(step.inputs)])
        made = result if is_contiguous(out.spec, out.strides) else device.cupy.empty(out.spec.shape, bits_of(out))
        call(group, step, 0 if operand is None else operand.data.ptr, made.data.ptr, stream)
        if made is not result:
            result[...] = made


def _contiguous(device: Any, view: View, address: int) -> Any:
    """Returns the operand, or a copy of it whose elements lie side by side."""
    found = array_of(device, view, address)
    if is_contiguous(view.spec, view.strides):
        return found
    copy = device.cupy.empty(view.spec.shape, bits_of(view))
    copy[...] = found
    return copy


def _add(command: Command, call: Call) -> None:
    def run(inputs: Sequence[Any], outputs: Sequence[Any], params: Params) -> None:
        kernel = find_kernel(command, tuple(map(spec_of, inputs)), params)
        assert kernel is not None  # of MPI
        kernel.run(inputs, outputs, params)

    def queue(step: Step, device: Any, precision: str) -> Callable[[Sequence[int], int], None]:
        return partial(_queue_call, step, device, call)

    add_kernel(command, Kernel(BACKEND, run, is_of_processes, priority=50, device=CUDA, queue=queue))


_add(collective.psum, _sum)
_add(collective.psum_scatter, _sum_of_part)
_add(collective.pmax, _extremum(_LARGEST, "max"))
_add(collective.pmin, _extremum(_SMALLEST, "min"))
_add(collective.all_gather, _gather)
_add(collective.all_gather_same, _gather)
_add(collective.all_to_all, _exchange)
_add(collective.ppermute, _permute)
_add(collective.process_index, _number)
