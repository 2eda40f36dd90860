"""The phases of lowering: which passes make a graph ready for its memory plan, in which order, and why that order holds.

A phase states its requirements of a graph and its guarantees; the runner refuses another order. Needs of a single
pass, beyond those of its phase, stand in its docstring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nnc.base.options import Options
from nnc.errors import InternalError
from nnc.graph import Graph, run_passes
from nnc.graph.passes import PhaseName, added_passes


@dataclass(frozen=True, slots=True)
class Phase:
    """Passes that run one after the other.

    Attributes:
        name: of the phase.
        passes: names of passes; sub-graphs are rewritten along with their graph.
        requires: facts that must hold before it.
        provides: facts that hold after it, in all later phases.
    """

    name: PhaseName
    passes: tuple[str, ...]
    requires: frozenset[str] = frozenset()
    provides: frozenset[str] = frozenset()

    def without(self, name: str) -> Phase:
        """Returns the phase without a pass, to measure the benefit of the pass."""
        return replace(self, passes=tuple(each for each in self.passes if each != name))


# Calls are inlined, but for barriers, which keep values that are recomputed on purpose from being merged with the original.
SIMPLIFY = Phase(
    "simplify",
    ("inline_calls", "dce", "fold", "simplify", "parts", "cse"),
    provides=frozenset({"calls are inlined", "equal values are one"}),
)
# Forms that users write, or that derivatives have, become forms that take less work or memory.
REWRITE = Phase(
    "rewrite",
    (
        "decompose", "subpixel", "licm", "one_hot", "combine", "sink_gathers", "join_sums", "split_sums", "dce",
        "hoist_products", "sink_sums", "sink_products", "dce", "fewer_residuals",
    ),
    requires=SIMPLIFY.provides,
    provides=frozenset({"loops are in their final form"}),
)  # fmt: skip
# The passes of SIMPLIFY again, which find more in the new forms; barriers have done their work.
SIMPLIFY_AGAIN = Phase(
    "simplify again",
    ("fold", "simplify", "parts", "cse", "dce", "sum_locally", "buckets", "inline_barriers"),
    requires=REWRITE.provides,
    provides=frozenset({"commands are final"}),
)
LAYOUT = Phase(
    "layout", ("layout",), requires=SIMPLIFY_AGAIN.provides, provides=frozenset({"layouts are final"})
)  # of nodes that are not computed element by element
ORDER = Phase(
    "order", ("prefuse", "order", "recompute"), requires=LAYOUT.provides, provides=frozenset({"nodes have an order"})
)
PACK = Phase(
    "pack",
    ("pack", "keep_packed"),
    requires=LAYOUT.provides | ORDER.provides,
    provides=frozenset({"weights are packed"}),
)
# Where memory is short: values are computed when they are read.
DELAY = Phase("delay", ("delay_cheap",), requires=ORDER.provides)
# After the choice of values to rematerialise, which works command by command.
FUSE = Phase(
    "fuse",
    (
        "split_reductions",
        "contract_products",
        "moments_in_blocks",
        "join_pools",
        "reduce_in_producers",
        "rematerialise_in_consumers",
        "fuse",
    ),
    requires=ORDER.provides,
    provides=frozenset({"commands are kernels"}),
)
# One kernel of a product and its epilogue.
JOIN = Phase("join", ("epilogue", "interleave"), requires=FUSE.provides)

SIMPLIFYING = (SIMPLIFY, REWRITE, SIMPLIFY_AGAIN)
SETTLING = (*SIMPLIFYING, LAYOUT)
PLACING = (ORDER, PACK)
BEFORE_FUSION = (*SETTLING, *PLACING)


def names_of(phases: Sequence[Phase]) -> tuple[str, ...]:
    """Returns the passes of phases, in their order; each phase ends with the passes that other packages add to it."""
    return tuple(name for phase in phases for name in (*phase.passes, *added_passes(phase.name)))


def facts_after(phases: Sequence[Phase], holds: frozenset[str] = frozenset()) -> frozenset[str]:
    """Returns the facts that hold after phases.

    Args:
        phases: in the order in which they run.
        holds: facts that hold before them.

    Raises:
        InternalError: a phase requires a fact that does not hold.
    """
    for phase in phases:
        missing = phase.requires - holds
        if missing:
            raise InternalError(f"phase {phase.name!r} requires that {' and '.join(sorted(missing))}")
        holds |= phase.provides
    return holds


def run_phases(graph: Graph, phases: Sequence[Phase], options: Options, holds: frozenset[str] = frozenset()) -> Graph:
    """Runs phases on a graph.

    Args:
        graph: any graph.
        phases: in the order in which they run.
        options: handed to every pass.
        holds: facts that hold before them.

    Raises:
        InternalError: a phase requires a fact that does not hold.
    """
    facts_after(phases, holds)
    return run_passes(graph, names_of(phases), options, verify=options.verify_passes)


READY_TO_FUSE = facts_after(BEFORE_FUSION)
READY_TO_JOIN = facts_after((FUSE,), READY_TO_FUSE)
