"""Passes from a symbolic graph to one that can be bound to buffers; importing the package registers them."""

from nnc.lower.passes.fusion.contract_products import contract_products
from nnc.lower.passes.fusion.epilogue import epilogue
from nnc.lower.passes.fusion.fuse import fuse
from nnc.lower.passes.fusion.interleave import interleave
from nnc.lower.passes.fusion.join_pools import join_pools
from nnc.lower.passes.fusion.moments_in_blocks import moments_in_blocks
from nnc.lower.passes.fusion.prefuse import prefuse
from nnc.lower.passes.fusion.reduce_in_producers import reduce_in_producers
from nnc.lower.passes.fusion.rematerialise_in_consumers import rematerialise_in_consumers
from nnc.lower.passes.fusion.split_reductions import split_reductions
from nnc.lower.passes.loops.fewer_residuals import fewer_residuals
from nnc.lower.passes.loops.hoist_products import hoist_products
from nnc.lower.passes.loops.licm import licm
from nnc.lower.passes.loops.sink_products import sink_products
from nnc.lower.passes.loops.sink_sums import sink_sums
from nnc.lower.passes.memory.buckets import buckets
from nnc.lower.passes.memory.delay_cheap import delay_cheap
from nnc.lower.passes.memory.keep_packed import keep_packed
from nnc.lower.passes.memory.layout import layout
from nnc.lower.passes.memory.order import order
from nnc.lower.passes.memory.pack import pack
from nnc.lower.passes.memory.recompute import recompute
from nnc.lower.passes.memory.sink_gathers import sink_gathers
from nnc.lower.passes.memory.sum_locally import sum_locally
from nnc.lower.passes.simplify.combine import combine
from nnc.lower.passes.simplify.cse import cse
from nnc.lower.passes.simplify.dce import dce
from nnc.lower.passes.simplify.decompose import decompose
from nnc.lower.passes.simplify.fold import fold
from nnc.lower.passes.simplify.inline_calls import inline_barriers, inline_calls
from nnc.lower.passes.simplify.join_sums import join_sums
from nnc.lower.passes.simplify.one_hot import one_hot
from nnc.lower.passes.simplify.parts import parts
from nnc.lower.passes.simplify.simplify import simplify
from nnc.lower.passes.simplify.split_sums import split_sums
from nnc.lower.passes.simplify.subpixel import subpixel

__all__ = [
    "buckets",
    "combine",
    "contract_products",
    "cse",
    "dce",
    "decompose",
    "delay_cheap",
    "epilogue",
    "fewer_residuals",
    "fold",
    "fuse",
    "hoist_products",
    "inline_barriers",
    "inline_calls",
    "interleave",
    "join_pools",
    "join_sums",
    "keep_packed",
    "layout",
    "licm",
    "moments_in_blocks",
    "one_hot",
    "order",
    "pack",
    "parts",
    "prefuse",
    "recompute",
    "reduce_in_producers",
    "rematerialise_in_consumers",
    "simplify",
    "sink_gathers",
    "sink_products",
    "sink_sums",
    "split_reductions",
    "split_sums",
    "subpixel",
    "sum_locally",
]  # fmt: skip
