"""The fuzzer calls every command: by an example, on the values at hand, or through something else that is named here."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from nnc.errors import NncError
from nnc.graph import COMMANDS, TensorSpec, command, infer_specs
from nnc.testing.fuzz.examples.tables import EXAMPLES, FREEDOM, SURROGATES
from nnc.testing.fuzz.generate import generate
from nnc.testing.fuzz.offers import command_offers
from nnc.testing.fuzz.program import program_source

OFFERS = {offer.name: offer for offer in command_offers()}
# Commands that programs do not call by name, and the callers that make their nodes.
REACHED_BY = {
    "loops, branches and functions with rules of their own": (
        "while scan case_of call isolated checkpoint custom_jvp custom_vjp linear_solve pure_callback pull_iterations pull_only "
        "add_tapes spread_tape sum_tape merge_tapes"
    ),
    "collectives over a named axis": (
        "psum pmax pmin all_gather all_gather_same psum_scatter all_to_all ppermute process_index"
    ),
    "derivatives": "attention_tangent attention_gradient bin_sums_input_grad pick_pool pick_pool_input_grad ine ie_moment",
    "functions of nnc.numpy and nnc.nn": "bin_sums fit",
    "the compiler": "fused unit with_epilogue pack",
    "debugging": "callback check_finite",
}
REACHED = {name for names in REACHED_BY.values() for name in names.split()}
AT_HAND = sorted(set(OFFERS) - set(EXAMPLES) - REACHED)


def test_every_command_has_an_example_or_takes_values_at_hand_or_is_reached_otherwise() -> None:
    known = {name for name in COMMANDS if not name.startswith("test_") and not name.endswith("_doctest")}
    assert known == set(EXAMPLES) | set(AT_HAND) | REACHED
    assert not REACHED & set(EXAMPLES)
    assert known >= {*FREEDOM, *SURROGATES}


@pytest.mark.parametrize("name", AT_HAND)
def test_a_command_without_an_example_is_called_on_the_values_at_hand(name: str) -> None:
    programs = (generate((1, i), [OFFERS[name]], [OFFERS[name]]) for i in range(6))
    assert any(f'command("{name}")' in program_source(program) for program in programs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_most_operands_of_an_example_are_taken(name: str) -> None:
    """A few are refused on purpose: windows that lie in the padding alone."""
    rng, taken = np.random.default_rng(1), 0
    for _ in range(20):
        operands, params = EXAMPLES[name](rng)
        specs = [x if isinstance(x, TensorSpec) else TensorSpec(x.shape, x.dtype) for x in operands]
        with suppress(NncError):
            taken += bool(infer_specs(command(name), tuple(specs), params))
    assert taken > 10
