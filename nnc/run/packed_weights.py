"""Packed forms of a program's arguments, kept from call to call while the arguments are the same arrays.

An array cannot change, so its packed form stays right for as long as it lives; a weak reference tells which array was
packed. Memory that somebody else can write to is packed in each call: memory of NumPy's arrays, and of an array which shares it
with one of those.

NumPy keeps no list of views, so that only counts of references show that memory has a second reader or writer, and that a
call still reads old packed forms. Without the first count everything is packed in each call (four convolutions of 64 channels:
0.20 ms rather than 0.155); without the second, packing into new memory made calls with other weights of 256 channels 10 to 15 %
slower.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nnc.array.array import Array
from nnc.base.fork import new_rlock
from nnc.base.target import Target
from nnc.commands.pack import pack
from nnc.device.cpu import aligned_bytes
from nnc.graph import Command, Kernel, TensorSpec
from nnc.lower.plan.stages import NDArray
from nnc.run.native_program import ProgramAbi

ChooseKernel = Callable[[Command, tuple[TensorSpec, ...], Mapping[str, Any], Target], Kernel]


class _PackedInput(NamedTuple):
    """One packed input: its spec, and the function and parameters that pack it."""

    spec: TensorSpec
    params: Mapping[str, Any]
    run: Callable[..., None]

    def room(self) -> NDArray:
        """Memory for the packed form."""
        return aligned_bytes(self.spec.nbytes).view(self.spec.dtype)


class _KeptForms(NamedTuple):
    """The packed forms of an argument; without an `owner`, memory for the next call."""

    owner: weakref.ref[Any] | None
    arrays: list[NDArray]


class PackedWeights:
    """The packed inputs of a program, which are its last ones: one set of them, for any number of threads."""

    def __init__(self, outside: ProgramAbi, choose: ChooseKernel, machine: Target) -> None:
        def row(source: int, layout: str, spec: TensorSpec) -> _PackedInput:
            params = MappingProxyType({"layout": layout})
            return _PackedInput(spec, params, choose(pack, (outside.inputs[source],), params, machine).run)

        pairs = list(zip(outside.kept, outside.inputs[len(outside.inputs) - len(outside.kept) :], strict=True))
        self._rows = {
            source: [row(source, layout, spec) for (_, layout), spec in group]
            for source, group in groupby(pairs, key=lambda pair: pair[0][0])
        }
        self._dtypes = {source: outside.inputs[source].dtype for source in self._rows}
        self._entries: dict[int, _KeptForms] = {}
        self._lock = new_rlock()

    @property
    def nbytes(self) -> int:
        """Bytes that are held at present."""
        return sum(array.nbytes for entry in list(self._entries.values()) for array in entry.arrays)

    def arrays(self, given: Sequence[Any]) -> list[NDArray]:
        """Returns the packed inputs of a call from its other inputs, arrays of nnc or NumPy."""
        found: list[NDArray] = []
        with self._lock:  # so that no thread packs into memory that another thread is about to read
            for source, rows in self._rows.items():
                entry, owner = self._entries.get(source), given[source]
                if entry is None or entry.owner is None or entry.owner() is not owner:
                    entry = self._make(source, rows, owner)
                found += entry.arrays
        return found

    def _make(self, source: int, rows: list[_PackedInput], owner: Any) -> _KeptForms:
        """Packs an argument, into the memory of the last call if no call still reads that memory."""
        before = self._entries.pop(source, None)
        arrays = before.arrays if before is not None and _is_unused(before.arrays) else [row.room() for row in rows]
        memory = np.require(owner.data if isinstance(owner, Array) else owner, self._dtypes[source], ("C", "A"))
        for row, out in zip(rows, arrays, strict=True):
            row.run([memory], [out], row.params)
        del memory
        reference = weakref.ref(owner, partial(_forget, weakref.ref(self), source)) if is_alone(owner) else None
        self._entries[source] = entry = _KeptForms(reference, arrays)
        return entry

    def forget(self, source: int, owner: weakref.ref[Any]) -> None:
        """Frees the packed forms of an array that was deleted."""
        entry = self._entries.get(source)
        if entry is not None and entry.owner is owner:
            self._entries.pop(source, None)


def _forget(kept: weakref.ref[PackedWeights], source: int, owner: weakref.ref[Any]) -> None:
    """Calls `PackedWeights.forget`, if that object lives."""
    alive = kept()
    if alive is not None:
        alive.forget(source, owner)


def _count(arrays: Sequence[NDArray], position: int) -> int:
    """Counts the references to an array of a list."""
    return sys.getrefcount(arrays[position])


def _count_base(view: NDArray) -> int:
    """Counts the references to the array that a view shows."""
    return sys.getrefcount(view.base)


_UNUSED, _ALONE = _count([np.empty(1)], 0), _count_base(np.empty(1)[:])


def _is_unused(arrays: Sequence[NDArray]) -> bool:
    """Whether only this list refers to its arrays."""
    return all(_count(arrays, i) == _UNUSED for i in range(len(arrays)))


def is_alone(owner: Any) -> bool:
    """Whether a value is an array of the CPU with the only reference to its memory, so that its packed forms can be kept."""
    if type(owner) is not Array or owner.is_deleted():
        return False
    view = owner.data
    return isinstance(view.base, np.ndarray) and view.base.flags.owndata and _count_base(view) == _ALONE
