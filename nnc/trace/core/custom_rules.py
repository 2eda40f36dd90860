"""Users' derivative rules as functions of flat values: as they are, within named axes, and for all rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from nnc.commands.rules import is_differentiable, lead, zeros
from nnc.graph import spec_of
from nnc.trace.core.axes import NOWHERE, Axes, union
from nnc.trace.core.backward import fill
from nnc.trace.core.batching import run_batched
from nnc.trace.core.custom_axes import Place, Traced, Varying
from nnc.trace.core.pulls import apply_pull_only
from nnc.trace.core.specs import argument_spec, outline
from nnc.trace.core.subgraphs import one_row

# (primals, tangents) -> (outputs, tangents)
Push = Callable[[Sequence[Any], Sequence[Any]], tuple[list[Any], list[Any]]]
Pull = Callable[[Sequence[Any], Sequence[Any]], list[Any]]  # (residuals, cotangents) -> cotangents of the arguments
Forward = Callable[[Sequence[Any]], tuple[list[Any], list[Any], Pull]]  # primals -> (outputs, residuals, pull)


@dataclass(frozen=True, slots=True)
class RuleAxes:
    """The named axes of a rule, whose first arguments are the numbers of the place along these axes.

    Args:
        axes: the number of axes.
        varying: for each axis, which arguments vary over it.
        same: for each axis, which outputs are the same at all places.
    """

    axes: int = 0
    varying: tuple[tuple[bool, ...], ...] = ()
    same: tuple[tuple[bool, ...], ...] = ()

    @classmethod
    def of(cls, place: Place, over: Varying, outputs: Varying) -> RuleAxes:
        """Returns the axes of a rule whose arguments and outputs vary over these axes; None: over any."""
        own: Varying = [frozenset((axis,)) for axis in place.axes]
        varying = tuple(tuple(found is None or axis in found for found in (*own, *over)) for axis in place.axes)
        same = tuple(tuple(found is not None and axis not in found for found in outputs) for axis in place.axes)
        return cls(len(place.axes), varying, same)

    def mapped(self, batched: Sequence[bool]) -> int | None:
        """Returns the axis whose places are the rows of a batch, if it is one of these."""
        return next((i for i, on in enumerate(batched[: self.axes]) if on), None)

    def same_outputs(self, batched: Sequence[bool], count: int) -> Sequence[bool]:
        """Which of the outputs are the same in all rows of a batch."""
        axis = self.mapped(batched)
        return [False] * count if axis is None else self.same[axis]


@dataclass(frozen=True, slots=True, eq=False)
class JvpRule:
    """A forward rule; a tangent that is None is zero."""

    push: Push
    along: RuleAxes = RuleAxes()
    is_elementwise: bool = False

    def __call__(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Outputs and their tangents."""
        return self.push(primals, tangents)

    def within(self, place: Place, over: Varying, outputs: Varying = ()) -> JvpRule:
        """Returns the rule within named axes, of arguments and outputs that vary over these."""

        def push(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            active = [t is not None for t in tangents[len(place.axes) :]]
            operands = [*primals, *(t for t in tangents if t is not None)]
            traced, count, moving = self._trace(place, operands, over, active, outputs)
            results = traced.evaluate(operands)
            return results[:count], fill(results[count:], moving)

        return JvpRule(push, RuleAxes.of(place, over, outputs), self.is_elementwise and not place.axes)

    def settled(self, place: Place, operands: Sequence[Any], over: Varying, found: Varying) -> list[Axes | None]:
        """Returns the axes over which outputs vary, where those of the function itself vary over `found`: a tangent may vary
        over more.
        """
        if not place.lacking(found):
            return list(found)
        arguments = operands[len(place.axes) :]
        active = [is_differentiable(argument_spec(x)) for x in arguments]
        given = [*operands, *compress(arguments, active)]
        traced, count, _ = self._trace(place, given, over, active, found, probes=True)
        return traced.axes[:count]

    def _trace(
        self, place: Place, operands: Sequence[Any], over: Varying, active: Sequence[bool], outputs: Varying,
        probes: bool = False,
    ) -> tuple[Traced, int, list[bool]]:  # fmt: skip
        """Returns the rule for one place, the number of outputs, and which of them have tangents.

        Operands are the numbers of the place, the arguments and the tangents of those that are `active`. An output and its tangent
        vary over the same axes.
        """
        box: list[Any] = []
        body = self._joint(len(over), active, box)

        def settle(found: list[Axes | None]) -> list[Axes | None]:
            count, moving = box
            tangents = iter(found[count:])
            known = outputs or [NOWHERE] * count
            wanted = [
                union([axes, own, next(tangents) if on else NOWHERE])
                for axes, own, on in zip(found[:count], known, moving, strict=True)
            ]
            return [*wanted, *compress(wanted, moving)]

        traced = place.trace(body, operands, [*over, *compress(over, active)], settle, probes=probes)
        return traced, *box

    def _joint(self, count: int, active: Sequence[bool], box: list[Any]) -> Callable[..., list[Any]]:
        """Returns the rule as a function from `count` primals and the tangents of `active` ones to the outputs and their
        tangents; `box` gets the number of outputs, and which of them have tangents.
        """

        def run(*values: Any) -> list[Any]:
            outputs, moved = self.push(values[:count], fill(values[count:], active))
            box[:] = len(outputs), [t is not None for t in moved]
            return [*outputs, *(t for t in moved if t is not None)]

        return run

    def batched(self, size: int, flags: Sequence[bool], same: Sequence[bool]) -> JvpRule:
        """Returns the rule for all rows. Arguments with `flags` have the batch axis, and all outputs but those that are the
        `same`.
        """

        def push(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            active = [t is not None for t in tangents]
            box: list[Any] = []
            given = [*primals, *(t for t in tangents if t is not None)]
            row = self._joint(len(primals), active, box)
            found = run_batched(row, size, given, [*flags, *compress(flags, active)])
            count, moving = box
            results = _rows(size, *found, [*same, *compress(same, moving)])
            return results[:count], fill(results[count:], moving)

        return JvpRule(push, self.along, self.is_elementwise)

    def batched_arguments(self, batched: Sequence[bool], count: int) -> list[bool]:
        """Which operands have the batch axis."""
        return list(batched)


@dataclass(frozen=True, slots=True, eq=False)
class VjpRule:
    """A backward rule: its forward part yields outputs, residuals, and the function from these and the cotangents of differentiable
    outputs to cotangents of the arguments.
    """

    forward: Forward
    along: RuleAxes = RuleAxes()

    def __call__(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Outputs, and tangents that can only be transposed."""
        outputs, residuals, pull = self.forward(primals)
        moving = [is_differentiable(x.spec) for x in outputs]

        def pull_active(cts: Sequence[Any]) -> list[Any]:
            found = pull(residuals, cts)
            return [ct for ct, t in zip(found, tangents, strict=True) if t is not None]

        specs = [x.spec for x in compress(outputs, moving)]
        pushed = apply_pull_only(pull_active, [t for t in tangents if t is not None], specs)
        return outputs, fill(pushed, moving)

    def within(self, place: Place, over: Varying, outputs: Varying = ()) -> VjpRule:
        """Returns the rule within named axes, of arguments and outputs that vary over these. A cotangent varies as its argument
        does: it is summed over other axes.
        """
        count = len(place.axes)

        def forward(primals: Sequence[Any]) -> tuple[list[Any], list[Any], Pull]:
            traced, number, pull = self._trace(place, primals, over, outputs)
            results = traced.evaluate(primals)
            moved = [a for x, a in zip(results[:number], traced.axes, strict=False) if is_differentiable(x.spec)]
            kept = traced.axes[number:]

            def pull_placed(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
                operands = [*residuals, *cts]
                run = lambda *values: pull(values[: len(kept)], values[len(kept) :])
                found = place.trace(run, operands, [*kept, *moved], lambda _: list(over)).evaluate(operands)
                return [*(zeros(spec_of(x)) for x in primals[:count]), *found]

            return results[:number], [*primals[:count], *results[number:]], pull_placed

        return VjpRule(forward, RuleAxes.of(place, over, outputs))

    def settled(self, place: Place, operands: Sequence[Any], over: Varying, found: Varying) -> list[Axes | None]:
        """Returns the axes over which outputs vary, where those of the function itself vary over `found`: the rule's may vary
        over more.
        """
        if not place.lacking(found):
            return list(found)
        traced, count, _ = self._trace(place, operands, over, found, probes=True)
        return traced.axes[:count]

    def _trace(
        self, place: Place, primals: Sequence[Any], over: Varying, outputs: Varying, probes: bool = False
    ) -> tuple[Traced, int, Pull]:
        """Returns the forward part for one place, the number of outputs, and the function for the cotangents."""
        box: list[Any] = []

        def body(*values: Any) -> list[Any]:
            found, residuals, pull = self.forward(values)
            box[:] = len(found), pull
            return [*found, *residuals]

        def settle(found: list[Axes | None]) -> list[Axes | None]:
            known = outputs or [NOWHERE] * box[0]
            return [*(union(pair) for pair in zip(found, known, strict=False)), *found[box[0] :]]

        traced = place.trace(body, primals, over, settle, probes=probes)
        summed = self._summed(place, primals, over, traced, *box)
        if summed:
            traced = place.trace(body, primals, over, settle, entry=summed, probes=probes)
        return traced, *box

    def _summed(
        self, place: Place, primals: Sequence[Any], over: Varying, traced: Traced, count: int, pull: Pull
    ) -> Axes:
        """Returns the axes over which cotangents of arguments would be summed though some output has but one cotangent for all
        places.

        Then the outputs have to vary over these, so that each place has a cotangent of its own.
        """
        specs = [s.spec for s in traced.staged.graph.outputs]
        moved = [i for i in range(count) if is_differentiable(specs[i])]
        target, missing = union(over), place.lacking([traced.axes[i] for i in moved])
        if target is None or not missing - target:
            return NOWHERE
        kept = range(count, len(specs))
        given = [outline(specs[i], traced.weak[i]) for i in (*kept, *moved)]
        run = lambda *values: pull(values[: len(kept)], values[len(kept) :])
        found = place.results_vary_over(
            run, [*primals[: len(place.axes)], *given], [traced.axes[i] for i in (*kept, *moved)]
        )
        return NOWHERE if found is None else found & missing - target

    def batched(self, size: int, flags: Sequence[bool], same: Sequence[bool]) -> VjpRule:
        """Returns the rule for all rows. Arguments with `flags` have the batch axis, and so have their cotangents. Outputs that
        are the `same` in all rows have none, and each row gets their whole cotangent.
        """

        def forward(primals: Sequence[Any]) -> tuple[list[Any], list[Any], Pull]:
            box: list[Any] = []

            def row(*values: Any) -> list[Any]:
                outputs, residuals, pull = self.forward(values)
                box[:] = len(outputs), pull, [is_differentiable(x.spec) for x in outputs]
                return [*outputs, *residuals]

            results, found = run_batched(row, size, primals, flags)
            count, pull, moving = box
            kept = found[count:]
            moved = [not once for once in compress(same, moving)]

            def pull_rows(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
                run = lambda *values: pull(values[: len(kept)], values[len(kept) :])
                pulled, on = run_batched(run, size, [*residuals, *cts], [*kept, *moved])
                return _rows(size, pulled, on, [not flag for flag in flags])

            return _rows(size, results[:count], found[:count], same), results[count:], pull_rows

        return VjpRule(forward, self.along)

    def batched_arguments(self, batched: Sequence[bool], count: int) -> list[bool]:
        """Which operands are to have the batch axis: all of the `count` arguments that differ from row to row, so that each row has
        a cotangent of its own; those of the others that have it.
        """
        axis = self.along.mapped(batched)
        varying = [True] * count if axis is None else self.along.varying[axis]
        places = self.along.axes
        return [*batched[:places], *varying[places:count], *batched[count:]]


def _rows(size: int, values: Sequence[Any], batched: Sequence[bool], same: Sequence[bool]) -> list[Any]:
    """Values with the batch axis, but for those that are the same in all rows."""
    pairs = zip(values, batched, same, strict=True)
    return [one_row(x, on) if once else lead(size, x, on) for x, on, once in pairs]


Rule = JvpRule | VjpRule
