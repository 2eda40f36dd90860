"""Importing this module registers the derivatives and batching rules of commands with sub-graphs: every transform does."""

from nnc.trace.core import custom, subgraphs
from nnc.trace.loops import branch_rules, replay_rules, scan_rules, while_rules

__all__ = ["branch_rules", "custom", "replay_rules", "scan_rules", "subgraphs", "while_rules"]
