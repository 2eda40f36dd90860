"""Entry points of `nnc.view`: `nnc.view(graph)`, `nnc.view.memory(executable)`, `nnc.view.schedule(executable)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nnc.compiled.compiled import BoundMethod, Compiled
from nnc.compiled.executable import Executable, Lowered
from nnc.compiled.reports import MemoryPlan, ScheduleReport
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph import Graph
from nnc.trace.core.specs import make_graph
from nnc.view.graph import draw_graph
from nnc.view.memory import draw_memory
from nnc.view.picture import Picture
from nnc.view.schedule import draw_schedule


@dataclass(frozen=True, slots=True)
class View:
    """Draws pictures; `nnc.view` is the one there is.

    Example:
        >>> nnc.view(make_graph(nnp.sin)(1.0))
        Picture(name='graph sin')
    """

    @api_boundary
    def __call__(self, graph: Any, /, *args: Any, **kwargs: Any) -> Picture:
        """Draws a graph: a box for each node, its wires, its sub-graphs inside.

        Blue boxes compute much for each element, green ones little; dashed ones are views, purple ones own sub-graphs. Pointing
        at a box shows its line of text and the user's line.

        Args:
            graph: a Graph, the result of `lower` or `compile`, or a function with arguments to trace it for.
            *args: those arguments; arrays or ShapeDtypeStructs.
            **kwargs: such arguments by name.

        Returns:
            a Picture, with `save("graph.svg")` and `save("graph.html")`; notebooks show it.

        Raises:
            ArgumentTypeError: nothing that has a graph.

        Example:
            >>> picture = nnc.view(lambda x: nnp.sin(x) * x, nnp.ones(3))
            >>> picture
            Picture(name='graph <lambda>')
            >>> picture.svg.count("item box")  # the input, two commands, the output
            4
        """
        if args or kwargs:
            graph = (
                graph.lower(*args, **kwargs)
                if isinstance(graph, (Compiled, BoundMethod))
                else make_graph(graph)(*args, **kwargs)
            )
        if isinstance(graph, (Executable, Lowered)):
            graph = graph.graph
        if not isinstance(graph, Graph):
            fix = "pass a graph, the result of compiled.lower(...), or a function with arguments to trace it for."
            raise user_error(ArgumentTypeError, "nnc.view", f"{graph!r} is no graph.", fix=fix)
        return draw_graph(graph)

    @staticmethod
    @api_boundary
    def memory(plan: Any, /) -> Picture:
        """Draws a memory plan: steps from left to right, addresses upwards, a rectangle for each life of a tensor.

        Args:
            plan: the result of `lower(...)` or `lower(...).compile()`, or its `memory_plan`.

        Raises:
            ArgumentTypeError: nothing that has a memory plan.

        Example:
            >>> program = nnc.compile(lambda x: nnp.sin(x) @ x).lower(nnp.ones((3, 3))).compile()
            >>> picture = nnc.view.memory(program)
            >>> picture.svg.count("<rect") == len(program.memory_plan.rows)
            True
        """
        if isinstance(plan, Lowered):
            plan = plan.compile()
        name = "memory plan"
        if isinstance(plan, Executable):
            name, plan = f"memory plan of {plan.graph.name}", plan.memory_plan
        if not isinstance(plan, MemoryPlan):
            fix = "pass the result of compiled.lower(...).compile()."
            raise user_error(ArgumentTypeError, "nnc.view.memory", f"{plan!r} has no memory plan.", fix=fix)
        return draw_memory(plan, name)

    @staticmethod
    @api_boundary
    def schedule(schedule: Any, /) -> Picture:
        """Draws a schedule: time from left to right, a band for each stream, a rectangle for each step.

        Args:
            schedule: the result of `lower(...)` or `lower(...).compile()`, its `schedule`, or the result of
                nnc.debug.profile.

        Raises:
            ArgumentTypeError: nothing that has a schedule.

        Example:
            >>> f = nnc.compile(lambda x: nnp.sin(x) @ x)
            >>> nnc.view.schedule(nnc.debug.profile(f, nnp.ones((3, 3))))
            Picture(name='measured run of <lambda>')
        """
        if isinstance(schedule, Lowered):
            schedule = schedule.compile()
        report = schedule.schedule if isinstance(schedule, Executable) else schedule
        if not isinstance(report, ScheduleReport):
            fix = "pass the result of compiled.lower(...).compile() or nnc.debug.profile(...)."
            raise user_error(ArgumentTypeError, "nnc.view.schedule", f"{schedule!r} has no schedule.", fix=fix)
        return draw_schedule(report)


view = View()
"""Draws a graph; `view.memory` draws a memory plan, and `view.schedule` a schedule.

Example:
    >>> nnc.view(lambda x: nnp.sin(x) * x, nnp.ones(3))
    Picture(name='graph <lambda>')
"""
