"""Passes from a symbolic graph to one that can be bound to buffers; importing the package registers them."""

from nnc.lower.passes.copy_outputs import copy_outputs
from nnc.lower.passes.dce import dce
from nnc.lower.passes.inline_calls import inline_barriers, inline_calls
from nnc.lower.passes.inplace import choose_inplace
from nnc.lower.passes.views import add_views

__all__ = ["add_views", "choose_inplace", "copy_outputs", "dce", "inline_barriers", "inline_calls"]
