"""nnc: pure functions over pytrees, traced into graphs, transformed, planned and compiled."""

from nnc import data, debug, errors, graph, io, nn, numpy, optim, random, testing, tree
from nnc.array import Array, asarray
from nnc.backends.cpu.threads import set_num_threads
from nnc.commands.indexing import dynamic_slice, dynamic_update_slice
from nnc.devices import devices
from nnc.dynamic import DynamicGraph
from nnc.jit import compile
from nnc.trace.branches import case_of, cond, switch
from nnc.trace.control_flow import associative_scan, fori_loop, map, scan, while_loop
from nnc.trace.custom import custom_jvp, custom_vjp
from nnc.trace.differentiate import grad, hvp, jvp, linear_transpose, linearize, stop_gradient, value_and_grad, vjp
from nnc.trace.jacobian import hessian, jacfwd, jacrev
from nnc.trace.specs import ShapeDtypeStruct, eval_shape, make_graph
from nnc.trace.subgraphs import checkpoint
from nnc.trace.vectorize import vmap
from nnc.view import view

__version__ = "0.1.0"

__all__ = [
    "Array",
    "DynamicGraph",
    "ShapeDtypeStruct",
    "asarray",
    "associative_scan",
    "case_of",
    "checkpoint",
    "compile",
    "cond",
    "custom_jvp",
    "custom_vjp",
    "data",
    "debug",
    "devices",
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
    "random",
    "scan",
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
