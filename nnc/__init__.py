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

if TYPE_CHECKING:
    from nnc import data, debug, distributed, io, nn, optim, random, scipy, testing
    from nnc.backends.cpu.threads.threads import set_num_threads
    from nnc.compiled.compiled import compile
    from nnc.compiled.dynamic import DynamicGraph
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

# Names by the modules that are imported when one is first asked for.
_MODULES = {
    "nnc.backends.cpu.threads.threads": "set_num_threads",
    "nnc.compiled.compiled": "compile",
    "nnc.compiled.dynamic": "DynamicGraph",
    "nnc.trace.core.collectives": "all_gather all_to_all axis_index axis_size pmax pmean pmin ppermute psum psum_scatter pvary",
    "nnc.trace.core.custom": "custom_jvp custom_vjp",
    "nnc.trace.core.differentiate": "grad hvp jvp linear_transpose linearize stop_gradient value_and_grad vjp",
    "nnc.trace.core.host": "pure_callback",
    "nnc.trace.core.jacobian": "hessian jacfwd jacrev",
    "nnc.trace.core.on_device": "block_until_ready default_device device_put",
    "nnc.trace.core.specs": "ShapeDtypeStruct eval_shape make_graph",
    "nnc.trace.core.subgraphs": "checkpoint",
    "nnc.trace.core.vectorize": "vmap",
    "nnc.trace.loops.branches": "case_of cond switch",
    "nnc.trace.loops.control_flow": "associative_scan fori_loop map scan while_loop",
    **{
        f"nnc.{name}": name
        for name in ["data", "debug", "distributed", "io", "nn", "optim", "random", "scipy", "testing", "view"]
    },
}
_LATER = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # to which a name that is not there would be one of type Any
    __getattr__ = module_getattr("nnc", _LATER)
    tree.__getattr__ = module_getattr("nnc.tree", {"at": "nnc.tree.edits", "ravel": "nnc.numpy.ravelling"})


def __dir__() -> list[str]:
    return sorted(__all__)
