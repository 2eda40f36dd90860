"""nnc: pure functions over pytrees, traced into graphs, transformed, planned and compiled."""

from typing import TYPE_CHECKING

from nnc.base.garbage import collection_paused

with collection_paused():  # modules stay, so looking through them for garbage is in vain
    from nnc import errors, graph, numpy, tree
    from nnc.array.array import Array, asarray
    from nnc.commands.indexing import dynamic_slice, dynamic_update_slice
    from nnc.compiled import targets as _targets  # noqa: F401  (registers the kinds of devices)
    from nnc.device import devices
    from nnc.errors.names import module_getattr
    from nnc.trace.core.collectives import (
        all_gather,
        all_to_all,
        axis_index,
        axis_size,
        pmax,
        pmean,
        pmin,
        ppermute,
        psum,
        psum_scatter,
        pvary,
    )
    from nnc.trace.core.custom import custom_jvp, custom_vjp
    from nnc.trace.core.differentiate import (
        grad,
        hvp,
        jvp,
        linear_transpose,
        linearize,
        stop_gradient,
        value_and_grad,
        vjp,
    )
    from nnc.trace.core.host import pure_callback
    from nnc.trace.core.jacobian import hessian, jacfwd, jacrev
    from nnc.trace.core.on_device import block_until_ready, default_device, device_put
    from nnc.trace.core.specs import ShapeDtypeStruct, eval_shape, make_graph
    from nnc.trace.core.subgraphs import checkpoint
    from nnc.trace.core.vectorize import vmap
    from nnc.trace.loops.branches import case_of, cond, switch
    from nnc.trace.loops.control_flow import associative_scan, fori_loop, map, scan, while_loop

if TYPE_CHECKING:
    from nnc import data, debug, distributed, io, nn, optim, random, scipy, testing
    from nnc.backends.cpu.threads.threads import set_num_threads
    from nnc.compiled.compiled import compile
    from nnc.compiled.dynamic import DynamicGraph
    from nnc.view import view

__version__ = "0.2.0"

__all__ = [
    "Array",
    "DynamicGraph",
    "ShapeDtypeStruct",
    "all_gather",
    "all_to_all",
    "asarray",
    "associative_scan",
    "axis_index",
    "axis_size",
    "block_until_ready",
    "case_of",
    "checkpoint",
    "compile",
    "cond",
    "custom_jvp",
    "custom_vjp",
    "data",
    "debug",
    "default_device",
    "device_put",
    "devices",
    "distributed",
    "dynamic_slice",
    "dynamic_update_slice",
    "errors",
    "eval_shape",
    "fori_loop",
    "grad",
    "graph",
    "hessian",
    "hvp",
    "io",
    "jacfwd",
    "jacrev",
    "jvp",
    "linear_transpose",
    "linearize",
    "make_graph",
    "map",
    "nn",
    "numpy",
    "optim",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "psum",
    "psum_scatter",
    "pure_callback",
    "pvary",
    "random",
    "scan",
    "scipy",
    "set_num_threads",
    "stop_gradient",
    "switch",
    "testing",
    "tree",
    "value_and_grad",
    "view",
    "vjp",
    "vmap",
    "while_loop",
]

# Imported when first asked for, as it takes longer than the rest.
_LATER = {
    "DynamicGraph": "nnc.compiled.dynamic",
    "compile": "nnc.compiled.compiled",
    "set_num_threads": "nnc.backends.cpu.threads.threads",
    **{
        name: f"nnc.{name}"
        for name in ("data", "debug", "distributed", "io", "nn", "optim", "random", "scipy", "testing", "view")
    },
}

if not TYPE_CHECKING:  # to which a name that is not there would be one of type Any
    __getattr__ = module_getattr("nnc", _LATER)
    tree.__getattr__ = module_getattr("nnc.tree", {"ravel": "nnc.numpy.ravelling"})  # which computes arrays


def __dir__() -> list[str]:
    return sorted(__all__)
