"""Tracing, and the transforms made of it: differentiation, batching, loops. Importing it registers the rules of all commands."""

from nnc.trace.core import custom, eager, subgraphs
from nnc.trace.loops import branch_rules, replay_rules, scan_rules, while_rules

__all__ = ["branch_rules", "custom", "eager", "replay_rules", "scan_rules", "subgraphs", "while_rules"]
