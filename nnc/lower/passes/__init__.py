"""Passes from a symbolic graph to one that can be bound to buffers; importing the package registers them."""

from nnc.lower.passes.combine import combine
from nnc.lower.passes.contract_products import contract_products
from nnc.lower.passes.cse import cse
from nnc.lower.passes.dce import dce
from nnc.lower.passes.delay_cheap import delay_cheap
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
from nnc.lower.passes.keep_packed import keep_packed
from nnc.lower.passes.layout import layout
from nnc.lower.passes.licm import licm
from nnc.lower.passes.one_hot import one_hot
from nnc.lower.passes.order import order
from nnc.lower.passes.pack import pack
from nnc.lower.passes.parts import parts
from nnc.lower.passes.prefuse import prefuse
from nnc.lower.passes.recompute import recompute
from nnc.lower.passes.reduce_in_producers import reduce_in_producers
from nnc.lower.passes.rematerialise_in_consumers import rematerialise_in_consumers
from nnc.lower.passes.shifted_sums import shifted_sums
from nnc.lower.passes.simplify import simplify
from nnc.lower.passes.sink_gathers import sink_gathers
from nnc.lower.passes.sink_products import sink_products
from nnc.lower.passes.sink_sums import sink_sums
from nnc.lower.passes.split_reductions import split_reductions
from nnc.lower.passes.split_sums import split_sums
from nnc.lower.passes.subpixel import subpixel

__all__ = [
    "combine",
    "contract_products",
    "cse",
    "dce",
    "delay_cheap",
    "epilogue",
    "fewer_residuals",
    "fold",
    "fuse",
    "hoist_products",
    "inline_barriers",
    "inline_calls",
    "interleave",
    "join_kernels",
    "join_pools",
    "join_sums",
    "keep_packed",
    "layout",
    "licm",
    "one_hot",
    "order",
    "pack",
    "parts",
    "prefuse",
    "recompute",
    "reduce_in_producers",
    "rematerialise_in_consumers",
    "shifted_sums",
    "simplify",
    "sink_gathers",
    "sink_products",
    "sink_sums",
    "split_reductions",
    "split_sums",
    "subpixel",
]  # fmt: skip
