# ruff: noqa: N802 (names of CuPy's methods)
"""A stand-in for NCCL as CuPy offers it: it records calls, and computes with places that all hold the same operands."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nnc.testing.devices.sim import Use
from tests.devices.cuda.machine import Machine

TYPES = (
    np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64, ml_dtypes.bfloat16,
)  # fmt: skip


class FakeNccl:
    """The module `cupy.cuda.nccl`, for one machine.

    Attributes:
        calls: (name, arguments but the addresses) of each.
        known: the identifiers that were made.
    """

    available = True

    def __init__(self, machine: Machine) -> None:
        self.machine, self.calls, self.known = machine, list[tuple[Any, ...]](), list[tuple[int, ...]]()
        self._group: list[tuple[Any, ...]] | None = None

    def get_unique_id(self) -> tuple[int, ...]:
        self.known.append(tuple([len(self.known)] * 128))
        return self.known[-1]

    def NcclCommunicator(self, size: int, identifier: tuple[int, ...], rank: int) -> Any:
        assert identifier in self.known and 0 <= rank < size
        return _Communicator(self, size, rank)

    def groupStart(self) -> None:
        assert self._group is None
        self._group = []

    def groupEnd(self) -> None:
        assert self._group is not None
        group, self._group = self._group, None
        sent = {peer: address for name, address, _, peer, *_ in group if name == "send"}
        for name, address, count, _, rank, stream in group:
            if name == "recv":  # the other place sends as this one does: to the same place, if it sends to several
                source = sent.get(rank, next(iter(sent.values()), None))
                assert source is not None
                self._move(source, address, count, 1, stream)

    def note(self, name: str, address: int, count: int, peer: int, rank: int, stream: int) -> None:
        assert (self._group is not None and peer != rank) or name in ("send", "recv")
        assert self._group is not None
        self._group.append((name, address, count, peer, rank, stream))

    def elements(self, address: int, count: int, kind: int) -> Any:
        """The elements at an address, which must be aligned and within their memory."""
        lease, first = self.machine._lease(address)
        dtype = np.dtype(TYPES[kind])
        assert first % dtype.itemsize == 0 and first + count * dtype.itemsize <= lease.nbytes
        return np.ndarray((count,), dtype, lease.bytes, first)

    def _move(self, x: int, out: int, count: int, kind: int, stream: int) -> None:
        self.queue("move", (x, count, kind), (out, count, kind), lambda a: a, stream)

    def queue(self, name: str, x: tuple[int, int, int], out: tuple[int, int, int], compute: Any, stream: int) -> None:
        source, target = self.elements(*x), self.elements(*out)
        lease, _ = self.machine._lease(out[0])

        def run() -> None:
            target[...] = np.asarray(compute(source)).astype(target.dtype)

        self.machine.queue(stream, name, lambda: (run, [Use(lease, 0, 0, False, True)]))


class _Communicator:
    def __init__(self, nccl: FakeNccl, size: int, rank: int) -> None:
        self.nccl, self.size, self.rank = nccl, size, rank

    def allReduce(self, x: int, out: int, count: int, kind: int, operation: int, stream: int) -> None:
        self.nccl.calls.append(("allReduce", count, kind, operation))
        compute = {0: lambda a: a * np.asarray(self.size, a.dtype), 2: lambda a: a, 3: lambda a: a}[operation]
        self.nccl.queue("allReduce", (x, count, kind), (out, count, kind), compute, stream)

    def reduceScatter(self, x: int, out: int, count: int, kind: int, operation: int, stream: int) -> None:
        self.nccl.calls.append(("reduceScatter", count, kind, operation))
        assert operation == 0
        own = slice(self.rank * count, (self.rank + 1) * count)
        compute = lambda a: a[own] * np.asarray(self.size, a.dtype)
        self.nccl.queue("reduceScatter", (x, count * self.size, kind), (out, count, kind), compute, stream)

    def allGather(self, x: int, out: int, count: int, kind: int, stream: int) -> None:
        self.nccl.calls.append(("allGather", count, kind))
        compute = lambda a: np.concatenate([a] * self.size)
        self.nccl.queue("allGather", (x, count, kind), (out, count * self.size, kind), compute, stream)

    def send(self, x: int, count: int, kind: int, peer: int, stream: int) -> None:
        self.nccl.calls.append(("send", count, kind, peer))
        self.nccl.note("send", x, count, peer, self.rank, stream)

    def recv(self, out: int, count: int, kind: int, peer: int, stream: int) -> None:
        self.nccl.calls.append(("recv", count, kind, peer))
        self.nccl.note("recv", out, count, peer, self.rank, stream)
