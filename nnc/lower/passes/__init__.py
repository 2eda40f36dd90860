"""Passes from a symbolic graph to one that can be bound to buffers; importing the package registers them."""

from nnc.lower.passes.at_readers import at_readers
from nnc.lower.passes.at_writers import at_writers
from nnc.lower.passes.combine import combine
from nnc.lower.passes.contract_products import contract_products
from nnc.lower.passes.cse import cse
from nnc.lower.passes.dce import dce
from nnc.lower.passes.epilogue import epilogue
from nnc.lower.passes.fewer_residuals import fewer_residuals
from nnc.lower.passes.fold import fold
from nnc.lower.passes.fuse import fuse
from nnc.lower.passes.hoist_products import hoist_products
from nnc.lower.passes.inline_calls import inline_barriers, inline_calls
from nnc.lower.passes.interleave import interleave
from nnc.lower.passes.join_kernels import join_kernels
from nnc.lower.passes.join_pools import join_pools
from nnc.lower.passes.join_sums import join_sums
from nnc.lower.passes.keep import keep
from nnc.lower.passes.late import late
from nnc.lower.passes.layout import layout
from nnc.lower.passes.licm import licm
from nnc.lower.passes.one_hot import one_hot
from nnc.lower.passes.order import order
from nnc.lower.passes.pack import pack
from nnc.lower.passes.parts import parts
from nnc.lower.passes.picks import picks
from nnc.lower.passes.recompute import recompute
from nnc.lower.passes.shifted_sums import shifted_sums
from nnc.lower.passes.simplify import simplify
from nnc.lower.passes.sink_products import sink_products
from nnc.lower.passes.sink_sums import sink_sums
from nnc.lower.passes.split_sums import split_sums
from nnc.lower.passes.subpixel import subpixel
from nnc.lower.passes.totals import totals
from nnc.lower.passes.units import units

__all__ = [
    "at_readers", "at_writers", "combine", "contract_products", "cse", "dce", "epilogue", "fewer_residuals", "fold", "fuse",
    "hoist_products", "inline_barriers", "inline_calls", "interleave", "join_kernels", "join_pools", "join_sums", "keep", "late",
    "layout", "licm", "one_hot", "order", "pack", "parts", "picks", "recompute", "shifted_sums", "simplify", "sink_products",
    "sink_sums", "split_sums", "subpixel", "totals", "units",
]  # fmt: skip
