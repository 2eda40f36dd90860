"""The memory plan: live ranges of buffers, and their places in one arena."""

from nnc.lower.alloc.arena import ALIGNMENT, ArenaPlan, max_live, plan_arena
from nnc.lower.alloc.checker import find_overlap
from nnc.lower.alloc.lifetimes import live_ranges

__all__ = ["ALIGNMENT", "ArenaPlan", "find_overlap", "live_ranges", "max_live", "plan_arena"]
