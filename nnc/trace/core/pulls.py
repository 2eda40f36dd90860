"""Linear maps that are known by their transposes alone: those of functions that are recomputed, and of users' backward rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from nnc.base.context import get_context
from nnc.commands.control import custom_vjp, pull_only
from nnc.graph import Graph, TensorSpec
from nnc.graph.registry import derivative
from nnc.graph.rules import Derivative, Linear, Tangents
from nnc.trace.core.backward import Reached, fill_cotangents, run_forward
from nnc.trace.core.dual import run_jvp
from nnc.trace.core.staging import stage


def has_backward_rules(graph: Graph) -> bool:
    """Whether users wrote backward rules of its nodes: these may add constants, so that a pull-back is not its own derivative."""
    return any(node.command is custom_vjp for node in graph.walk())


def apply_pull_only(
    pull: Callable[..., Any],
    tangents: Sequence[Any],
    outputs: Sequence[TensorSpec],
    leaves_out: bool = False,
    takes_none: bool = False,
) -> list[Any]:
    """Tangents of specs `outputs` under the linear map whose transpose is `pull(cotangents) -> cotangents`, None where zero.

    While something is staged, `pull` is traced at once: its values are symbols of the graph being staged, which the linear
    graph, that loops and branches take over into graphs of their own, must name as operands. `leaves_out`: cotangents that are
    zero take no part, as zero times infinity is not zero; `pull` consists of commands with derivatives then. `takes_none`: nor do
    they, and `pull` gets None in their place. Users' rules get zeros.
    """
    if get_context().staging is None:
        params = {"pull": pull, "outputs": tuple(outputs), "leaves_out": leaves_out, "takes_none": takes_none}
        return list(run_forward(pull_only, tangents, params, ()))
    reached = Reached(pull)
    staged = stage(reached, outputs, name="pull")
    if not any(reached.flags):
        return [None] * len(outputs)
    params = {"pull": None, "outputs": tuple(outputs), "leaves_out": leaves_out}
    operands = [*compress(tangents, reached.flags), *staged.captured]  # the tangents do not depend on the others
    return list(run_forward(pull_only, operands, params, (staged.graph,)))


def _pull_only_transpose(
    cotangents: Tangents,
    operands: tuple[Any, ...],
    pull: Callable[..., Any],
    outputs: Any,
    leaves_out: bool = False,
    takes_none: bool = False,
    graphs: tuple[Graph, ...] = (),
) -> Tangents:
    count = len(graphs[0].outputs) if graphs else len(operands)
    filled = cotangents if takes_none else fill_cotangents(outputs, cotangents)
    reached = Reached(lambda cts: graphs[0].evaluate([*cts, *operands[count:]]) if graphs else pull(cts))
    some_are_zero = leaves_out and any(ct is None for ct in cotangents)
    # a linear map is its own derivative
    found = run_jvp(reached, filled, cotangents)[1] if some_are_zero else reached(*filled)
    pulled = (ct if isinstance(x, Linear) else None for ct, x in zip(reached.fill(found), operands, strict=False))
    return (*pulled, *[None] * (len(operands) - count))


derivative.set(pull_only, Derivative(transpose=_pull_only_transpose))
