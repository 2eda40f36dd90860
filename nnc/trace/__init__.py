"""Tracing, and the transforms made of it: differentiation, batching, loops. Importing it registers the rules of all commands."""

from nnc.trace import branch_rules, custom, eager, loop_rules, replay_rules, subgraphs

__all__ = ["branch_rules", "custom", "eager", "loop_rules", "replay_rules", "subgraphs"]
