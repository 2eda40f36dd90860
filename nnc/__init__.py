"""nnc: pure functions over pytrees, traced into graphs, transformed, planned and compiled."""

# ruff: noqa: F403  (each file lists its names)

from typing import TYPE_CHECKING

from nnc.base.garbage import collection_paused
from nnc.base.options import openblas_kept

with collection_paused():  # modules stay, so looking through them for garbage is in vain
    # Python 3.11 keeps its stack in chunks, and a loop of calls that cross from one to the next is a thousand times slower. NumPy's
    # import has long loops, so it begins here, where the stack is shallow; deeper it took 15 ms more by chance.
    with openblas_kept():
        import numpy as _numpy  # noqa: F401

    from nnc import errors as errors
    from nnc import graph as graph
    from nnc import numpy as numpy
    from nnc import tree as tree
    from nnc.array.array import Array as Array
    from nnc.array.array import asarray as asarray
    from nnc.array.indexing import dynamic_slice as dynamic_slice
    from nnc.array.indexing import dynamic_update_slice as dynamic_update_slice
    from nnc.base.libraries import check_openblas as _check_openblas
    from nnc.compiled import device_kinds as _device_kinds  # noqa: F401  (registers the kinds of devices)
    from nnc.device import devices as devices
    from nnc.errors.names.lookup import public_names

    _check_openblas()

if TYPE_CHECKING:
    from nnc import data as data
    from nnc import debug as debug
    from nnc import distributed as distributed
    from nnc import io as io
    from nnc import nn as nn
    from nnc import onnx as onnx
    from nnc import optim as optim
    from nnc import random as random
    from nnc import scipy as scipy
    from nnc import testing as testing
    from nnc.backends.cpu.threads.threads import set_num_threads as set_num_threads
    from nnc.compiled.decorator import compile as compile
    from nnc.compiled.dims import dim as dim
    from nnc.compiled.dynamic import DynamicGraph as DynamicGraph
    from nnc.exporting.export import export as export
    from nnc.exporting.loading import load_exported as load_exported
    from nnc.trace.core.collectives import *
    from nnc.trace.core.custom import *
    from nnc.trace.core.differentiate import *
    from nnc.trace.core.host import *
    from nnc.trace.core.jacobian import *
    from nnc.trace.core.on_device import *
    from nnc.trace.core.specs import *
    from nnc.trace.core.subgraphs import *
    from nnc.trace.core.vectorize import *
    from nnc.trace.loops.branches import *
    from nnc.trace.loops.control_flow import *
    from nnc.view import view as view

__version__ = "0.2.0"

# Names by the modules that are imported when one is first asked for.
_MODULES = {
    "nnc.backends.cpu.threads.threads": "set_num_threads",
    "nnc.compiled.decorator": "compile",
    "nnc.compiled.dims": "dim",
    "nnc.compiled.dynamic": "DynamicGraph",
    "nnc.exporting.export": "export",
    "nnc.exporting.loading": "load_exported",
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
        for name in ["data", "debug", "distributed", "io", "nn", "onnx", "optim", "random", "scipy", "testing", "view"]
    },
}
_LATER = {name: module for module, names in _MODULES.items() for name in names.split()}
_NOW = ("Array", "asarray", "devices", "dynamic_slice", "dynamic_update_slice", "errors", "graph", "numpy", "tree")

__all__ = tuple(sorted((*_NOW, *_LATER)))

if not TYPE_CHECKING:  # with __getattr__, they would take a wrong name for one of type Any
    __getattr__, __dir__ = public_names("nnc", _LATER)
    tree.__getattr__, tree.__dir__ = public_names("nnc.tree", {"at": "nnc.tree.edits", "ravel": "nnc.tree.ravelling"})
