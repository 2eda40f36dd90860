"""LAPACK through Fortran's interface: the library that NumPy's wheel brings along, found in NumPy's list of files."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache

import numpy as np

from nnc.base.dtypes import DType
from nnc.base.machine import address_of, files_of
from nnc.errors import BackendError


@dataclass(frozen=True)
class Lapack:
    """The loaded library. Its integers have 64 bits, its names a prefix and a suffix."""

    functions: ctypes.CDLL

    def symbol(self, routine: str, dtype: DType) -> str:
        """Returns the C name of a routine for a dtype: `symbol("potrf", float64)` names DPOTRF."""
        return f"scipy_{'s' if dtype.itemsize == 4 else 'd'}{routine}_64_"

    def address(self, symbol: str) -> int:
        """Returns the address of a function."""
        found = address_of(self.functions, symbol)
        if found is None:
            raise BackendError(f"LAPACK has no function {symbol}")
        return found

    def room(self, routine: str, dtype: DType, arguments: Sequence[bytes | int | None]) -> tuple[int, int]:
        """Returns the numbers of elements and of integers of workspace that a routine asks for.

        `arguments` are those before `work`: letters, sizes, and None for tensors. Routines without integer workspace ask for 0.
        """
        work, iwork, info, query = np.zeros(1, dtype), c_int64(0), c_int64(0), c_int64(-1)
        given = [
            argument
            if isinstance(argument, bytes)
            else byref(c_int64(argument))
            if argument is not None
            else c_void_p(0)
            for argument in arguments
        ]
        given += [work.ctypes.data_as(c_void_p), byref(query)]
        if routine == "syevd":
            given += [byref(iwork), byref(query)]
        elif routine in ("gesdd", "gees"):
            given.append(byref(iwork))
        letters = [c_size_t(1) for argument in arguments if isinstance(argument, bytes)]
        getattr(self.functions, self.symbol(routine, dtype))(*given, byref(info), *letters)
        if info.value:
            raise BackendError(f"LAPACK's {routine} does not tell its workspace: {info.value}")
        return int(np.ceil(work[0])), iwork.value


@cache
def lapack() -> Lapack | None:
    """NumPy's LAPACK; None where NumPy came without the library, or with one whose names are others."""
    for file in files_of("numpy", "numpy.libs/"):
        if "openblas" in file.name:
            try:
                found = Lapack(ctypes.CDLL(str(file)))
                for routine in ("potrf", "gesv", "getrf", "geqrf", "orgqr", "syevd", "gesdd", "gees", "trsyl", "gemm"):
                    found.address(found.symbol(routine, np.dtype(np.float64)))
            except (OSError, BackendError):
                continue
            return found
    return None
