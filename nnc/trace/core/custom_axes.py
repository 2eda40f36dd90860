"""Rules of custom functions within named axes.

A rule runs when a derivative is asked for: at once, or for all places together when the axes are gone. In both cases it is traced
first for one place, with its axes bound, where it is known which values vary. The graph has the `pvary` and `psum` nodes that the
rule needs, so it can be run at any level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nnc.array.array import as_value
from nnc.array.promote import is_weak
from nnc.base.context import get_context, new_level, set_context
from nnc.base.dtypes import Weakness
from nnc.commands.collective import INDEX
from nnc.commands.rules import is_differentiable
from nnc.trace.core.axes import NOWHERE, Axes, NamedAxis, axes_within, matched, union, vary, varying_over
from nnc.trace.core.flat import name_of
from nnc.trace.core.specs import argument_spec
from nnc.trace.core.staging import NamedStagingTrace, Staged

Varying = Sequence[Axes | None]
# from the axes of results to those that they are made to vary over
Settle = Callable[[list[Axes | None]], list[Axes | None]]


class Traced(NamedTuple):
    """A function traced for one place: its graph, whose first inputs are the numbers of the place, and for each result the axes
    over which it varies and whether it is weak.
    """

    staged: Staged
    axes: list[Axes | None]
    weak: list[Weakness]

    def evaluate(self, operands: Sequence[Any]) -> list[Any]:
        """The results; `operands` are the numbers of the place and the function's arguments."""
        found = self.staged.graph.evaluate([*operands, *self.staged.captured])
        return [x.as_weak(weak) if weak else x for x, weak in zip(map(as_value, found), self.weak, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The named axes that are bound where a custom function is called, outermost first.

    Args:
        function: the custom function, which its rules may call.
    """

    function: Any
    axes: tuple[NamedAxis, ...]

    def trace(
        self, fun: Callable[..., Sequence[Any]], operands: Sequence[Any], over: Varying, settle: Settle = list,
        is_rule: bool = True, entry: Axes = NOWHERE, probes: bool = False,
    ) -> Traced:  # fmt: skip
        """Traces `fun` for one place.

        A result that is made of constants alone varies over the axes over which the arguments do, as it would if each place ran its
        own program. A constant that meets another value says nothing of the result.

        Args:
            fun: a function from flat sequences of values to flat sequences of values.
            operands: the numbers of the place, then the arguments of `fun`.
            over: for each argument, the axes over which it varies.
            settle: returns the axes over which the results are to vary; over other axes they are summed.
            is_rule: whether `fun` runs a rule of the function.
            entry: axes over which the arguments vary within `fun`, besides their own.
            probes: whether only the axes of the results are wanted. A call of the function within the rule then does not ask
                again.
        """

        def given(present: Present, *values: Any) -> Sequence[Any]:
            more = _in_terms_of(present, entry)
            return fun(*(vary(x, more) if is_differentiable(x.spec) else x for x in values))

        staged, found, weak = self._trace(given, operands, over, is_rule, probes)
        whole = union([*over, entry])
        wanted = settle(
            [union([axes, whole]) if alone else axes for axes, alone in zip(found, _constants(staged), strict=True)]
        )
        if wanted != self._of_graph(staged, over):
            graph, captured = staged.graph, staged.captured

            def again(present: Present, *values: Any) -> list[Any]:
                indices = [axis.index for axis in present.values()]
                results = map(as_value, graph.evaluate([*indices, *values, *captured]))
                return matched(list(results), [_in_terms_of(present, axes) for axes in wanted])

            staged, _, _ = self._trace(again, operands, over, is_rule, probes)
        return Traced(staged, wanted, weak)

    def _trace(
        self, fun: Callable[..., Sequence[Any]], operands: Sequence[Any], over: Varying, is_rule: bool, probes: bool
    ) -> tuple[Staged, list[Axes | None], list[Weakness]]:
        """Returns the graph of `fun(axes, *values)`, which gets the axes as they are bound within; over which axes its results
        vary; and which of them are weak.
        """
        count, name = len(self.axes), name_of(self.function)
        trace = NamedStagingTrace(f"rule of {name}" if is_rule else name)
        trace.probes = self.function if probes else None
        present: Present = {}
        with trace.recording():
            for axis, index in zip(self.axes, operands[:count], strict=True):
                here = trace.named_input(INDEX, False, NOWHERE)
                is_bound = axis.index is index  # else all places run together, or another trace's
                present[axis] = axis if is_bound else replace(axis, index=here, level=new_level())
                trace.note_axes(here, frozenset((present[axis],)))
            inputs = [
                trace.named_input(argument_spec(x), is_weak(x), _in_terms_of(present, axes))
                for x, axes in zip(operands[count:], over, strict=True)
            ]
            with set_context(axes=tuple(present.values())):
                results = fun(present, *inputs)
                weak = [is_weak(x) for x in results]
                staged = trace.finish([as_value(x) for x in results])
        former = {here: axis for axis, here in present.items()}
        return staged, [_in_terms_of(former, axes) for axes in staged.axes], weak

    def _of_graph(self, staged: Staged, over: Varying) -> list[Axes | None]:
        """Returns the axes over which the results of a graph vary; constants vary over none."""
        own: Varying = [frozenset((axis,)) for axis in self.axes]
        known = zip(staged.graph.inputs, [*own, *over, *map(varying_over, staged.captured)], strict=True)
        found = axes_within(staged.graph, dict(known))
        return [found.get(s, NOWHERE) for s in staged.graph.outputs]

    def results_vary_over(
        self, fun: Callable[..., Sequence[Any]], operands: Sequence[Any], over: Varying
    ) -> Axes | None:
        """Returns the axes over which some result of a rule varies; `operands` may be shapes."""
        return union(self._trace(lambda _, *values: fun(*values), operands, over, True, True)[1])

    def lacking(self, outputs: Varying) -> Axes:
        """Returns the axes over which a rule may find that outputs vary, though some here do not. None within a rule that is
        asked.
        """
        if any(axes is None for axes in outputs) or self.is_probed():
            return NOWHERE
        return frozenset(axis for axis in self.axes if any(axis not in axes for axes in outputs if axes is not None))

    def is_probed(self) -> bool:
        """Whether a rule of the function, which calls it, is asked for the axes of its results. Functions of one text count as
        one, such as Bessel functions, whose rules call those of the next order.
        """
        trace, own = get_context().staging, _text_of(self.function)
        while trace is not None:
            probed = getattr(trace, "probes", None)
            if probed is not None and _text_of(probed) is own:
                return True
            trace = getattr(trace, "outer", None)
        return False


def _text_of(function: Any) -> Any:
    return getattr(function.fun, "__code__", function)


Present = dict[NamedAxis, NamedAxis]  # axes by those that were bound at the call


def _constants(staged: Staged) -> list[bool]:
    """Which results are differentiable and depend on no argument and on no number of the place."""
    graph = staged.graph
    reached = set(graph.inputs[: staged.num_explicit])
    for node in graph.nodes:
        if not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
    return [s not in reached and is_differentiable(s.spec) for s in graph.outputs]


def _in_terms_of(present: Present, axes: Axes | None) -> Axes | None:
    return None if axes is None else frozenset(present[axis] for axis in axes)
