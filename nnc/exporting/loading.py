"""Calls exported functions from Python, on NumPy arrays: to test them."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnc import tree
from nnc.base import dtypes
from nnc.compiled.object_code import ALIGNMENT, load_object, runs_here
from nnc.device.cpu import aligned_bytes
from nnc.errors import (
    ArgumentError,
    BackendError,
    FileFormatError,
    MissingFileError,
    ShapeError,
    UnsupportedError,
    user_error,
)
from nnc.errors.tracebacks import api_boundary
from nnc.exporting.record import Exported, record_in

_WHERE = "nnc.load_exported"


class LoadedFunction:
    """An exported function, loaded into this process. Calls have an arena each.

    Attributes:
        exported: the record in its folder.
    """

    def __init__(self, exported: Exported, addresses: dict[str, int], held: Any, constants: Any) -> None:
        self.exported = exported
        pointers = [ctypes.c_void_p] * (3 if constants is None else 4)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int, *pointers)(addresses[exported.name])
        self._held, self._constants = held, constants
        if exported.has_pool:
            start, stop = (addresses[f"{exported.name}_{each}"] for each in ("start", "stop"))
            self._held = held, weakref.finalize(self, _Pool(held, stop))
            if error := ctypes.CFUNCTYPE(ctypes.c_int)(start)():
                problem = f"the system gives no threads: {os.strerror(error)}."
                raise user_error(BackendError, exported.name, problem, fix="export it with fewer threads.")

    @api_boundary
    def __call__(self, *args: Any) -> Any:
        """Runs the function on pytrees of arrays, whose leaves are its inputs in this order.

        Returns:
            an array where the function returns a single one, else a tuple of the result's leaves.

        Raises:
            ArgumentError, ShapeError: the arrays are not those that the function takes.
            BackendError: the function returns an error.
        """
        exported = self.exported
        arrays = self._inputs(tree.leaves(args))
        results = [np.empty(x.shape, dtypes.as_dtype(x.dtype)) for x in exported.outputs]
        arena = aligned_bytes(max(exported.arena_bytes, 1), ALIGNMENT)
        lists = [_pointers(arrays), _pointers(results), arena.ctypes.data]
        code = self._call(*lists, *([] if self._constants is None else [self._constants.ctypes.data]))
        if code:
            fix = "see the message; nnc.compile words the error with its values."
            raise user_error(BackendError, exported.name, exported.errors.get(code, f"error {code}."), fix=fix)
        return results[0] if len(results) == 1 and not exported.outputs[0].path else tuple(results)

    def _inputs(self, leaves: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        wanted = self.exported.inputs
        if len(leaves) != len(wanted):
            problem = f"it takes {len(wanted)} arrays, {len(leaves)} were given."
            raise user_error(ArgumentError, self.exported.name, problem, fix="pass one array for each input.")
        arrays = []
        for leaf, spec in zip(leaves, wanted, strict=True):
            dtype = dtypes.as_dtype(spec.dtype) if dtypes.is_scalar(leaf) else None
            array = np.require(np.asarray(leaf, dtype), requirements=("C", "A"))
            if array.shape != spec.shape or array.dtype != dtypes.as_dtype(spec.dtype):
                operands = {spec.path: f"{array.dtype}{list(array.shape)}"}
                problem = f"{spec.path} must be {spec.dtype}{list(spec.shape)}."
                raise user_error(
                    ShapeError,
                    self.exported.name,
                    problem,
                    operands=operands,
                    fix="pass an array of this shape and dtype.",
                )
            arrays.append(array)
        return arrays


class _Pool:
    """Ends the threads of a loaded function, whose code is `held` until then."""

    def __init__(self, held: Any, stop: int) -> None:
        self._held, self._stop = held, ctypes.CFUNCTYPE(None)(stop)

    def __call__(self) -> None:
        self._stop()


def _pointers(arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    return (ctypes.c_void_p * max(len(arrays), 1))(*(x.ctypes.data for x in arrays))


@api_boundary
def load_exported(path: str | os.PathLike[str]) -> LoadedFunction:
    """Loads a function that `nnc.export` wrote for this kind of processor.

    Args:
        path: the folder.

    Returns:
        a function of arrays, or of pytrees of them, that returns NumPy arrays.

    Raises:
        MissingFileError: there is no such folder.
        FileFormatError: it holds no exported function.
        UnsupportedError: the function is made for another processor.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "total"
        >>> made = nnc.export(nnp.sum, nnc.ShapeDtypeStruct((3,), "float64"), path=folder, name="total")
        >>> float(nnc.load_exported(folder)(np.array([1.0, 2.0, 4.0])))
        7.0
    """
    folder = Path(path)
    if not folder.is_dir():
        fix = "pass the folder that nnc.export wrote."
        raise user_error(MissingFileError, _WHERE, f"there is no folder {str(folder)!r}.", fix=fix)
    file = record_in(folder)
    try:
        if file is None:
            raise FileNotFoundError("NAME.json is not there")
        exported = Exported.from_json(file.read_text(encoding="utf-8"))
        content = (folder / f"{exported.name}.o").read_bytes()
        constants = None
        if exported.constants == "file":
            constants = aligned_bytes(max(exported.constant_bytes, 1), ALIGNMENT)
            constants[: exported.constant_bytes] = np.fromfile(folder / f"{exported.name}.bin", np.uint8)
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"the folder {str(folder)!r} holds no exported function: {error}."
        raise user_error(FileFormatError, _WHERE, problem, fix="export the function anew.") from error
    if not runs_here(exported.target):
        fix = 'export it with target="native", or link it into a program for that processor.'
        raise user_error(UnsupportedError, _WHERE, f"it is made for {exported.target}, not for this machine.", fix=fix)
    pool = (f"{exported.name}_start", f"{exported.name}_stop") if exported.has_pool else ()
    addresses, held = load_object(content, exported.needs, (exported.name, *pool))
    return LoadedFunction(exported, addresses, held, constants)
