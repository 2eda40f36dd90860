"""Passes that take work out of loops."""

from nnc.base.later import later

move_out = later(f"{__name__}.licm", "move_out")
