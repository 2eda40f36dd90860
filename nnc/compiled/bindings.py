"""Binds the arrays of a call to the inputs of a program, and the program's outputs to the function's result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from nnc.array.array import Array, new_array
from nnc.array.promote import astype, with_weakness
from nnc.base import dtypes
from nnc.errors import ArgumentTypeError, user_error
from nnc.graph import TensorSpec
from nnc.run.direct import Results
from nnc.run.packed_weights import PackedWeights
from nnc.trace.core.flat import FlatTree

_MEMORY = attrgetter("memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Finds the inputs of a program among the dynamic leaves of a call and the arrays that the function captures.

    Attributes:
        reads: for each input that is a leaf, the leaf's position and its spec.
        reads_all: whether these are all leaves, in their order.
        captured: the arrays for the inputs after the leaves.
        donated: positions of donated leaves.
        written: inputs that the program overwrites.
        spared: donated leaves whose memory the program does not overwrite.
    """

    reads: tuple[tuple[int, TensorSpec], ...]
    reads_all: bool
    captured: tuple[Array, ...]
    donated: frozenset[int]
    written: tuple[int, ...]
    spared: tuple[int, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the inputs are the leaves, in their order, and none is overwritten."""
        return self.reads_all and not self.donated

    def memory(self, leaves: Sequence[Any], kept: PackedWeights | None) -> list[Any]:
        """Returns the memory of all inputs; the program alone holds that of inputs that it overwrites.

        Args:
            leaves: the dynamic leaves of a call; callers have checked that they fit.
            kept: makes the packed inputs, which are the last ones.
        """
        made: Sequence[Any] = ()
        if kept is not None:  # which counts other references to arrays, so before there are more
            made = kept.arrays([*(leaves[i] for i, _ in self.reads), *self.captured])
        found: list[Any]
        try:
            found = list(map(_MEMORY, leaves if self.reads_all else [leaves[i] for i, _ in self.reads]))
        except AttributeError:  # a NumPy array, a number, an array that was donated
            found = [_data(leaves[i], spec) for i, spec in self.reads]
        if self.captured:
            found += [value.data for value in self.captured]
        found += made
        if self.donated:
            self._release(leaves, found)
        return found

    def _release(self, leaves: Sequence[Any], memory: list[Any]) -> None:
        for place in self.written:
            leaf = leaves[self.reads[place][0]]
            if not isinstance(leaf, Array):
                memory[place] = memory[place].copy()
            elif not leaf.is_deleted():  # else it was donated twice, and its first occurrence kept this reference
                memory[place] = None  # so that nobody else holds the memory
                memory[place] = leaf.release()

    def give_back(self, leaves: Sequence[Any], memory: Sequence[Any]) -> None:
        """Returns the memory of donated arrays to them: the program has not written to it."""
        for place in self.written:
            leaf = leaves[self.reads[place][0]]
            if isinstance(leaf, Array) and leaf.is_deleted() and memory[place] is not None:
                leaf.take_back(memory[place])

    def end(self, leaves: Sequence[Any], outputs: list[Any]) -> list[Any]:
        """Deletes donated arrays that were not overwritten; returns outputs that share no memory with NumPy's."""
        for i in self.spared:
            leaf = leaves[i]
            if isinstance(leaf, Array):
                leaf.delete()
            elif isinstance(leaf, np.ndarray):
                # its owner may still write to it, though the function returned it unchanged
                outputs = [x.copy() if np.may_share_memory(x, leaf) else x for x in outputs]
        return outputs

    def operands(self, leaves: Sequence[Any]) -> list[Any]:
        """Returns values for the inputs of the graph, for another trace: leaves in the dtypes that it reads, and captures."""
        values = [(leaves[i], spec.dtype) for i, spec in self.reads]
        own = [astype(x, dtype, "argument") if dtypes.is_scalar(x) else x for x, dtype in values]
        return [*own, *self.captured]


class Outputs(NamedTuple):
    """Builds a function's result from the outputs of a program.

    Attributes:
        tree: the result, with a place for each output.
        specs: the specs of the outputs.
        weak: which outputs take the dtype of arrays that they meet.
        is_array: whether the result is one array, in no container.
    """

    tree: FlatTree
    specs: tuple[TensorSpec, ...]
    weak: tuple[dtypes.Weakness, ...]
    is_array: bool

    @classmethod
    def of(cls, tree: FlatTree, specs: tuple[TensorSpec, ...], weak: tuple[dtypes.Weakness, ...]) -> Outputs:
        """Returns the outputs of these specs in their places of a result."""
        return cls(tree, specs, weak, tree.treedef.is_leaf() and len(tree.where) == 1)

    def result(self, memory: Sequence[Any]) -> Any:
        """Returns the function's result, of the memory of all outputs."""
        if self.is_array:
            return new_array(memory[0], self.specs[0], self.weak[0])
        return self.tree.build(list(map(new_array, memory, self.specs, self.weak)))

    def build(self, values: Sequence[Any]) -> Any:
        """Returns the function's result with these values for the outputs of the graph, for another trace."""
        return self.tree.build([with_weakness(x, weak) for x, weak in zip(values, self.weak, strict=True)])

    def in_order(self, order: Sequence[int]) -> Results:
        """Returns the arrays that compiled code makes, in the order in which it makes them."""
        by_place = sorted(zip(order, self.specs, self.weak, strict=True), key=itemgetter(0))
        return Results([spec for _, spec, _ in by_place], [weak for *_, weak in by_place], self.is_array)

    def builder(self, order: Sequence[int] | None) -> Callable[[list[Any]], Any] | None:
        """Makes a function from the arrays that compiled code made to the function's result; None where the result is the one
        array.
        """
        if self.is_array:
            return None
        build = self.tree.build
        if order is None or len(order) < 2:
            return build
        pick = itemgetter(*order)
        return lambda made: build(pick(made))


def _data(leaf: Any, spec: TensorSpec) -> np.ndarray[Any, Any]:
    if isinstance(leaf, Array):
        return leaf.data
    if hasattr(leaf, "spec"):
        fix = "call the function with arrays; shapes alone are enough for .lower(...)."
        raise user_error(ArgumentTypeError, "argument", f"{leaf!r} is no array, it only stands for one.", fix=fix)
    array = np.asarray(astype(leaf, spec.dtype, "argument") if dtypes.is_scalar(leaf) else leaf)
    return array if array.dtype.isnative else array.astype(spec.dtype)
