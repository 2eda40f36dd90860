"""The memory plan: live ranges of buffers, and their places in one arena.

`arena` chooses: `greedy` has the portfolio, `core` begins with the fullest steps, `search` and `beam` follow where no
such plan meets the bound, `article` the published algorithm. `turns` makes one turn of a search. `problem` is the planners'
common input, `checker` checks plans by itself.
"""

from nnc.base.later import later
from nnc.lower.alloc.arena import ALIGNMENT, ArenaPlan, plan_arena, plan_blocks
from nnc.lower.alloc.problem import Block

find_block_overlap = later(f"{__name__}.checker", "find_block_overlap")
find_overlap = later(f"{__name__}.checker", "find_overlap")

__all__ = [
    "ALIGNMENT",
    "ArenaPlan",
    "Block",
    "find_block_overlap",
    "find_overlap",
    "plan_arena",
    "plan_blocks",
]
