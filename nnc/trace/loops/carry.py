"""The values a loop carries, compared with the results of its function; shared with branches, whose results must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnc import tree
from nnc.array.array import as_value
from nnc.array.promote import as_operand, astype, is_weak, shown_spec, with_weakness
from nnc.base import dtypes
from nnc.errors import ShapeError, TreeError, user_error
from nnc.graph import TensorSpec
from nnc.graph.rules import Value
from nnc.trace.core.axes import Axes, union, vary, varying_over
from nnc.trace.core.flat import FlatTree, definition_of, name_of
from nnc.trace.core.specs import argument_spec
from nnc.trace.core.staging import axes_of


class Carry:
    """The values a loop carries: a pytree whose structure, shapes and dtypes stay the same from iteration to iteration."""

    def __init__(self, where: str, value: Any) -> None:
        self.where = where
        self.tree = FlatTree(value)
        self.leaves = [as_operand(leaf, where, "a carried value") for leaf in self.tree.dynamic]
        self.axes = axes_of(self.leaves)  # over which a value varies in some iteration; None outside of named axes
        self.is_settled = True  # whether no iteration was found to vary over more

    @property
    def specs(self) -> list[TensorSpec]:
        """Spec of each value."""
        return [argument_spec(leaf) for leaf in self.leaves]

    @property
    def weak(self) -> list[dtypes.Weakness]:
        """Which values take the dtype of arrays that they meet."""
        return [is_weak(leaf) for leaf in self.leaves]

    @property
    def values(self) -> list[Value]:
        """The values as operands."""
        values = [astype(leaf, spec.dtype, self.where) for leaf, spec in zip(self.leaves, self.specs, strict=True)]
        return values if self.axes is None else [vary(x, axes) for x, axes in zip(values, self.axes, strict=True)]

    def take(self, changed: Mapping[int, tuple[dtypes.DType, dtypes.Weakness]]) -> None:
        """Gives weak starting values other dtypes, and the weakness that they then have."""
        for i, (dtype, weak) in changed.items():
            self.leaves[i] = with_weakness(as_value(astype(self.leaves[i], dtype, self.where)), weak)

    def spread(self, axes: Sequence[Axes | None]) -> None:
        """Has each value vary over these axes, too."""
        following = [union(pair) for pair in zip(self.axes or (), axes, strict=True)]
        self.is_settled = self.is_settled and following == self.axes
        self.axes = following

    def accept(self, following: Any, fun: Any) -> tuple[list[Any], dict[int, tuple[dtypes.DType, dtypes.Weakness]]]:
        """Returns the leaves of the carry that `fun` returned, and the dtypes and weakness that weak starting values have to
        take first: those that some later iteration gives them.

        Raises:
            TreeError: the carry has another structure.
            ShapeError: some values have another shape or dtype; the message lists all of them.
        """
        given, source, lines_of = FlatTree(following), name_of(fun), {name_of(fun): definition_of(fun)}
        if given.treedef != self.tree.treedef:
            raise tree.tree_mismatch(
                self.where, "the initial carry", self.tree.build(self.leaves), f"the carry that {source} returns", following,
                operands=lines_of, fix=f"let {source} return a carry of the structure it was given.",
            )  # fmt: skip
        check_settings(self.where, "the initial carry", self.tree, f"the carry that {source} returns", given)
        result, lines = [], []
        changed: dict[int, tuple[dtypes.DType, dtypes.Weakness]] = {}
        for i, (path, leaf, first) in enumerate(zip(self.tree.paths(), given.dynamic, self.leaves, strict=True)):
            value = as_operand(leaf, self.where, f"the carry that {source} returns")
            want, have = argument_spec(first), argument_spec(value)
            weak = dtypes.joint_weakness([(want.dtype, is_weak(first)), (have.dtype, is_weak(value))])
            if is_weak(value) and keeps(first, want.dtype, value, have.dtype):
                value, have = astype(value, want.dtype, self.where), have.update(dtype=want.dtype)
            turns = have.dtype != want.dtype or weak is not is_weak(first)
            if is_weak(first) and turns and have.shape == want.shape and takes(have.dtype, want.dtype):
                changed[i] = have.dtype, weak
            elif (have.shape, have.dtype) != (want.shape, want.dtype):
                lines.append(f"  carry{path}: {shown_spec(first)} at first, {shown_spec(leaf)} after an iteration")
            result.append(value)
        if lines:
            problem = f"{source} returns a carry of other shapes or dtypes than the initial one:\n" + "\n".join(lines)
            fix = f"convert the initial values, or the results of {source}, with .astype(...) or nnp.broadcast_to."
            raise user_error(ShapeError, self.where, problem, operands=lines_of, fix=fix)
        if self.axes is not None:
            self.spread([varying_over(x) for x in result])
            result = [vary(x, axes) for x, axes in zip(result, self.axes, strict=True)]
        return result, changed

    def build(self, results: Sequence[Any]) -> Any:
        """Returns the carry after the loop: a value is weak where the first one was, and the ones that the function returns are."""
        return self.tree.build([with_weakness(x, weak) for x, weak in zip(results, self.weak, strict=True)])


def check_settings(where: str, left_name: str, left: FlatTree, right_name: str, right: FlatTree) -> None:
    """Raises unless two trees of one structure have arrays in the same places and equal settings in the others."""
    lines = []
    for path, a, b in zip(tree.paths(left.treedef), left.leaves, right.leaves, strict=True):
        if tree.is_array(a) != tree.is_array(b) or not (tree.is_array(a) or a is b or bool(a == b)):
            texts = ["an array" if tree.is_array(x) else repr(x) for x in (a, b)]
            lines.append(f"  {''.join(path) or 'the value'}: {texts[0]} in {left_name}, {texts[1]} in {right_name}")
    if lines:
        problem = f"{left_name} and {right_name} differ in leaves other than arrays:\n" + "\n".join(lines)
        fix = "leaves other than arrays are fixed when the function is traced: keep them as they are, or make them numbers."
        raise user_error(TreeError, where, problem, fix=fix)


def keeps(first: Any, own: dtypes.DType, value: Any, other: dtypes.DType) -> bool:
    """Whether the first value of a carry keeps its dtype `own` where a weak one of dtype `other` follows. Of two weak floats the
    wider dtype is kept.
    """
    if not takes(own, other) or not is_weak(first):
        return takes(own, other)
    if takes(other, own):
        return other.itemsize <= own.itemsize and other != dtypes.uint64
    return dtypes.is_scalar(value)


def takes(strong: Any, weak: Any) -> bool:
    """Whether values of dtype `strong` keep it when they meet a weak one of dtype `weak`."""
    return bool(dtypes.raise_kind(strong, weak) == strong)
