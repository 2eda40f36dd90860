"""The phases of lowering: which passes make a graph ready for its memory plan, and in which order.

Each pass says by facts which passes must come before it; the runner refuses another order. A pass of nnc stands in its file and
here, nowhere else; docs/rooms/passes.md is made of this tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

from nnc.base.later import later
from nnc.base.options import CPU, Options
from nnc.commands.collective import BY_ELEMENTS
from nnc.commands.roles import roles
from nnc.commands.rules import reduction, together
from nnc.device import kind_of
from nnc.errors import RegistryError, user_error
from nnc.graph import Graph, find_pass, register_pass, run_passes
from nnc.graph.passes import Fact, PassFunction, PhaseName, added_passes
from nnc.graph.registry import joined
from nnc.lower.passes.fusion.epilogue import epilogue
from nnc.lower.passes.fusion.fuse import fuse
from nnc.lower.passes.fusion.prefuse import prefuse
from nnc.lower.passes.fusion.rematerialize_in_consumers import rematerialize_in_consumers
from nnc.lower.passes.fusion.split_reductions import split_reductions
from nnc.lower.passes.memory.keep_packed import keep_packed
from nnc.lower.passes.memory.layout import layout
from nnc.lower.passes.memory.order import order
from nnc.lower.passes.memory.pack import pack
from nnc.lower.passes.memory.rematerialize_after_peak import rematerialize_after_peak
from nnc.lower.passes.simplify.cse import cse
from nnc.lower.passes.simplify.dce import dce
from nnc.lower.passes.simplify.fold import fold
from nnc.lower.passes.simplify.inline_calls import inline_barriers, inline_calls
from nnc.lower.passes.simplify.parts import parts
from nnc.lower.passes.simplify.simplify import simplify
from nnc.lower.plan.schedule.assign import most_streams


class Phase(NamedTuple):
    """Passes that run one after the other; sub-graphs are rewritten along with their graph.

    Attributes:
        name: the phase's name, which passes of other packages give to run at its end.
        passes: the functions, each registered under its own name.
    """

    name: PhaseName
    passes: tuple[PassFunction, ...]

    def without(self, name: str) -> Phase:
        """Returns the phase without a pass, to measure the benefit of the pass."""
        return self._replace(passes=tuple(each for each in self.passes if each.__name__ != name))


def _rare(file: str, **facts: Any) -> PassFunction:
    """Registers the pass of a file, which is imported when the pass first has a graph to look at."""
    name = file.rpartition(".")[2]
    return register_pass(name, **facts)(later(f"{__package__}.passes.{file}", name))


# Passes that many programs do without.
decompose = _rare(
    "simplify.decompose",
    when=lambda options: kind_of(options.device) != CPU,
    invalidates=[Fact.SIMPLIFIED, Fact.NO_DEAD],
)
plan_replays = _rare(
    "loops.plan_replays",
    concerns=("pull_iterations",),
    when=lambda options: kind_of(options.device) == CPU,
    invalidates=[Fact.SIMPLIFIED, Fact.FOLDED, Fact.MERGED, Fact.NO_DEAD],
)
subpixel = _rare("simplify.subpixel", concerns=("conv_input_grad",), invalidates=[Fact.SIMPLIFIED, Fact.NO_DEAD])
licm = _rare("loops.licm", concerns=roles, ensures=[Fact.NO_INVARIANTS], invalidates=[Fact.NO_DEAD])
one_hot = _rare(
    "simplify.one_hot", concerns=("dot", "gather"), requires=[Fact.COMMANDS, Fact.FOLDED], invalidates=[Fact.NO_DEAD]
)
combine = _rare(
    "simplify.combine",
    concerns=("dot", "gather", "reduce_sum", "scatter"),
    requires=[Fact.COMMANDS, Fact.MERGED],
    ensures=[Fact.COMBINED],
    invalidates=[Fact.NO_DEAD],
)
sink_gathers = _rare(
    "memory.sink_gathers",
    concerns=("gather", "scatter", "pick_log_softmax"),
    requires=[Fact.COMMANDS, Fact.COMBINED],
    invalidates=[Fact.FOLDED, Fact.NO_DEAD],
)
join_sums = _rare("simplify.join_sums", concerns=joined, invalidates=[Fact.NO_DEAD])
hoist_products = _rare(
    "loops.hoist_products", concerns=roles, requires=[Fact.NO_INVARIANTS], invalidates=[Fact.NO_DEAD]
)
sink_sums = _rare("loops.sink_sums", concerns=roles, requires=[Fact.MERGED], invalidates=[Fact.NO_DEAD])
sink_products = _rare("loops.sink_products", concerns=roles, requires=[Fact.MERGED], invalidates=[Fact.NO_DEAD])
rematerialize_residuals = _rare(
    "loops.rematerialize_residuals", concerns=roles, requires=[Fact.MERGED, Fact.NO_DEAD], invalidates=[Fact.NO_DEAD]
)
sum_locally = _rare("memory.sum_locally", concerns=BY_ELEMENTS, requires=[Fact.SIMPLIFIED])
buckets = _rare("memory.buckets", concerns=BY_ELEMENTS, requires=[Fact.SIMPLIFIED])
delay_cheap = _rare("memory.delay_cheap", requires=[Fact.LOW_PEAK])
contract_products = _rare(
    "fusion.contract_products",
    when=lambda options: options.contract,
    requires=[Fact.COMBINED],
    invalidates=[Fact.COMMANDS, Fact.KERNELS],
)
moments_in_blocks = _rare(
    "fusion.moments_in_blocks", concerns=reduction, requires=[Fact.LAYOUT], invalidates=[Fact.KERNELS]
)
join_pools = _rare(
    "fusion.join_pools", concerns=together, requires=[Fact.LAYOUT, Fact.ORDERED], invalidates=[Fact.KERNELS]
)
reduce_in_producers = _rare(
    "fusion.reduce_in_producers", concerns=reduction, requires=[Fact.ORDERED], invalidates=[Fact.KERNELS]
)
interleave = _rare("fusion.interleave", when=lambda options: most_streams(options) > 1, requires=[Fact.KERNELS])
check_finite = _rare("check_finite")

SIMPLIFY = Phase("simplify", (inline_calls, plan_replays, dce, fold, simplify, parts, cse))
# Forms that users write, or that derivatives have, become forms that take less work or memory.
REWRITE = Phase(
    "rewrite",
    (
        decompose, subpixel, licm, one_hot, combine, sink_gathers, join_sums, dce,
        hoist_products, sink_sums, sink_products, dce, rematerialize_residuals,
    ),
)  # fmt: skip
# The passes of SIMPLIFY again, which find more in the new forms; barriers have done their work.
SIMPLIFY_AGAIN = Phase("simplify again", (fold, simplify, parts, cse, dce, sum_locally, buckets, inline_barriers))
LAYOUT = Phase("layout", (layout,))  # of nodes that are not computed element by element
ORDER = Phase("order", (prefuse, order, rematerialize_after_peak))
PACK = Phase("pack", (pack, keep_packed))
DELAY = Phase("delay", (delay_cheap,))  # where memory is short: values are computed when they are read
# After the choice of values to rematerialize under a budget, which works command by command.
FUSE = Phase(
    "fuse",
    (
        split_reductions, contract_products, moments_in_blocks, join_pools, reduce_in_producers, rematerialize_in_consumers,
        fuse,
    ),
)  # fmt: skip
JOIN = Phase("join", (epilogue, interleave))  # one kernel of a product and its epilogue

SIMPLIFYING = (SIMPLIFY, REWRITE, SIMPLIFY_AGAIN)
SETTLING = (*SIMPLIFYING, LAYOUT)
PLACING = (ORDER, PACK)
BEFORE_FUSION = (*SETTLING, *PLACING)
PHASES = (*BEFORE_FUSION, DELAY, FUSE, JOIN)

TRACED = frozenset({Fact.BARRIERS, Fact.COMMANDS})  # the facts that hold of traced graphs


def names_of(phases: Sequence[Phase]) -> tuple[str, ...]:
    """Returns the passes of phases, in their order; each phase ends with the passes that other packages add to it."""
    return tuple(
        name for phase in phases for name in (*(each.__name__ for each in phase.passes), *added_passes(phase.name))
    )


def facts_after(names: Sequence[str]) -> frozenset[Fact]:
    """Returns the facts that hold after passes on a traced graph.

    Args:
        names: the passes, in the order in which they run.

    Raises:
        RegistryError: a pass requires a fact that does not hold.
    """
    holds, lost = TRACED, dict[Fact, str]()
    for step in map(find_pass, names):
        missing = step.requires - holds
        if missing:
            fact = min(missing, key=lambda each: each.name)
            why = f"pass {lost[fact]!r} invalidates it" if fact in lost else "no pass before it ensures it"
            raise user_error(
                RegistryError, step.name, f"the pass requires {fact}: {fact.value} Here {why}.",
                fix="register it for another phase, or state the facts that it requires and invalidates as they are.",
            )  # fmt: skip
        holds = holds - step.invalidates | step.ensures
        lost |= dict.fromkeys(step.invalidates - step.ensures, step.name)
    return holds


def run_phases(graph: Graph, phases: Sequence[Phase], options: Options) -> Graph:
    """Runs phases, which must follow one another in PHASES, on a graph after the phases before them.

    Raises:
        RegistryError: a pass requires a fact that does not hold.
    """
    earlier = PHASES[: get_args(PhaseName).index(phases[0].name)]
    facts_after(names_of((*earlier, *phases)))
    return run_passes(graph, names_of(phases), options, verify=options.verify_passes)
