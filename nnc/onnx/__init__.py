"""Models in the ONNX format: `load` makes one a pure function, `export` writes a function as one.

The package `onnx` reads and writes the files (the extra `onnx`). It is imported when one of these two is first asked for.
"""

from typing import TYPE_CHECKING

from nnc.errors.names.lookup import public_names

if TYPE_CHECKING:
    from nnc.onnx.callable import load as load
    from nnc.onnx.writers.export import export as export

_MODULES = {"load": "nnc.onnx.callable", "export": "nnc.onnx.writers.export"}

__all__ = ["export", "load"]

if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.onnx", _MODULES)
