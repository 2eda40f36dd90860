"""Symbolic graphs: specs, symbols, nodes, the open command registry, builder, passes, rewrite rules, text and JSON forms.

Nothing here knows a command by name, but for `slice` and `assemble`, through which the builder gives aliases a meaning.
"""

from typing import TYPE_CHECKING

from nnc.errors.names import module_getattr
from nnc.graph.boxes import Box, covers, first_overlap, uncovered
from nnc.graph.builder import GraphBuilder, InlineGraph, check_same_dtype, infer_specs
from nnc.graph.dispatch import Command, Interpreter, bind, find_interpreter, set_eager
from nnc.graph.graph import Graph, Node, Symbol
from nnc.graph.hashing import same_params, structural_hash, structurally_equal
from nnc.graph.passes import PASSES, Pass, PassRecord, find_pass, register_pass, run_passes
from nnc.graph.registry import (
    ATTRIBUTES,
    COMMANDS,
    Attribute,
    Kernel,
    add_kernel,
    attribute,
    command,
    expect_kernels,
    find_kernel,
    infer,
    kernel,
    reference,
    register,
)
from nnc.graph.rewrite import apply_rules
from nnc.graph.rule import Rule, RuleError, Sample, rewrite_rule, sample
from nnc.graph.serialize import from_json, load_graph, save_graph, storable, to_json
from nnc.graph.spec import STRIDED, TensorSpec, spec_of
from nnc.graph.text import node_texts, symbol_numbers, to_text, value_text
from nnc.graph.verify import verify

if TYPE_CHECKING:
    from nnc.graph.rule_check import check_rule

__all__ = [
    "ATTRIBUTES",
    "COMMANDS",
    "PASSES",
    "STRIDED",
    "Attribute",
    "Box",
    "Command",
    "Graph",
    "GraphBuilder",
    "InlineGraph",
    "Interpreter",
    "Kernel",
    "Node",
    "Pass",
    "PassRecord",
    "Rule",
    "RuleError",
    "Sample",
    "Symbol",
    "TensorSpec",
    "add_kernel",
    "apply_rules",
    "attribute",
    "bind",
    "check_rule",
    "check_same_dtype",
    "command",
    "covers",
    "expect_kernels",
    "find_interpreter",
    "find_kernel",
    "find_pass",
    "first_overlap",
    "from_json",
    "infer",
    "infer_specs",
    "kernel",
    "load_graph",
    "node_texts",
    "reference",
    "register",
    "register_pass",
    "rewrite_rule",
    "run_passes",
    "same_params",
    "sample",
    "save_graph",
    "set_eager",
    "spec_of",
    "storable",
    "structural_hash",
    "structurally_equal",
    "symbol_numbers",
    "to_json",
    "to_text",
    "uncovered",
    "value_text",
    "verify",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:
    __getattr__ = module_getattr(__name__, {"check_rule": f"{__name__}.rule_check"})
