# ruff: noqa: N802, N815 (names of C functions)
"""A stand-in for cuBLASLt: C functions that record their descriptions, check them, and multiply on the machine's memory."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np

from nnc.testing.devices.sim import Use
from tests.devices.cuda.machine import Machine

TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
SUMS = {
    68: (np.float32, 0),
    70: (np.float64, 1),
    77: (np.float32, 0),
    75: (np.float32, 0),
}  # accumulator, type of the factors

MATMUL = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 16)


def gelu(x: Any) -> Any:
    """The library's: by tanh."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class FakeCublasLt:
    """The library, for one machine.

    Attributes:
        calls: the descriptions of each product that ran.
        refuses: whether no algorithm is found.
        plans: how many algorithms are found.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine, self.refuses, self.plans = machine, False, 1
        self.cublasLtMatmul = MATMUL(self._multiply)
        self.known: dict[int, dict[str, Any]] = {}
        self.calls: list[dict[str, Any]] = []

    def _new(self, place: Any, **described: Any) -> int:
        self.known[len(self.known) + 1] = described
        place._obj.value = len(self.known)
        return 0

    def _set(self, described: Any, number: int, value: Any, size: Any) -> int:
        assert ctypes.sizeof(value._obj) == size.value
        self.known[described.value][number] = value._obj.value
        return 0

    def _set_operation(self, described: Any, number: int, value: Any, size: Any) -> int:
        assert number in (3, 4, 7, 8)  # transposes, epilogue, address of the bias
        return self._set(described, number, value, size)

    def cublasLtCreate(self, place: Any) -> int:
        return self._new(place)

    def cublasLtMatmulDescCreate(self, place: Any, sums: int, scale: int) -> int:
        assert SUMS[sums][1] == scale
        return self._new(place, sums=sums)

    def cublasLtMatrixLayoutCreate(self, place: Any, kind: int, rows: Any, columns: Any, leading: Any) -> int:
        assert leading.value >= rows.value > 0 and columns.value > 0
        return self._new(place, kind=kind, rows=rows.value, columns=columns.value, leading=leading.value)

    def cublasLtMatmulPreferenceCreate(self, place: Any) -> int:
        return self._new(place)

    def cublasLtMatmulPreferenceDestroy(self, described: Any) -> int:
        return 0

    cublasLtMatmulDescSetAttribute = _set_operation
    cublasLtMatrixLayoutSetAttribute = cublasLtMatmulPreferenceSetAttribute = _set

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: Any, operation: Any, a: Any, b: Any, c: Any, d: Any, wanted: Any, most: int, found: Any, count: Any
    ) -> int:  # fmt: skip
        if self.refuses:
            count._obj.value = 0
            return 15  # CUBLAS_STATUS_NOT_SUPPORTED
        preference = self.known[wanted.value]
        assert set(preference) == {1, 5, 6, 7, 8} and most == len(found) >= self.plans
        for place, each in enumerate(found[: self.plans]):
            each.algo[0] = operation.value
            for position, number in enumerate((5, 6, 7, 8)):
                each.algo[1 + position] = preference[number]
            each.algo[5], each.algo[6] = preference[1], place
        count._obj.value = self.plans
        return 0

    def cublasLtGetVersion(self) -> int:
        return 130100

    def cublasLtMatmulDescDestroy(self, described: Any) -> int:
        del self.known[described.value][7]  # of an operation with an epilogue
        return 0

    def _multiply(self, *arguments: int | None) -> int:
        try:
            self._queue(*[argument or 0 for argument in arguments])
        except BaseException as error:
            self.machine.faults.append(error)
            return 14
        return 0

    def _queue(
        self, handle: int, operation: int, alpha: int, a: int, of_a: int, b: int, of_b: int, beta: int, c: int, of_c: int, d: int,
        of_d: int, algo: int, workspace: int, nbytes: int, stream: int,
    ) -> None:  # fmt: skip
        described = dict(self.known[operation])
        left, right, result = (self.known[each] for each in (of_a, of_b, of_d))
        factor = ctypes.c_double if SUMS[described["sums"]][1] else ctypes.c_float
        added = factor.from_address(beta).value
        assert (factor.from_address(alpha).value, c, of_c) == (1, d, of_d) and added in (0, 1)
        chosen = list((ctypes.c_uint64 * 8).from_address(algo))
        origin = self.known[chosen[0]]  # for which the algorithm was found
        assert chosen[5] == nbytes and {**origin, 8: 0} == {**described, 8: 0}
        for place, alignment in zip((a, b, c, d), chosen[1:5], strict=True):
            assert place % alignment == 0
        epilogue = described.get(7, 0)
        self.calls.append(
            {
                "sums": described["sums"], "a": left, "b": right, "d": result, "workspace": nbytes, "epilogue": epilogue,
                "place": chosen[6], "adds": added == 1,
            }
        )  # fmt: skip

        def bind() -> Any:
            return self._bind(described, (left, a), (right, b), (result, d), (workspace, nbytes), added == 1)

        self.machine.queue(stream, "cublasLtMatmul", bind)

    def _bind(self, described: dict[str, Any], a: Any, b: Any, d: Any, workspace: tuple[int, int], adds: bool) -> Any:
        """The work of a product, and the memory that it uses."""
        x, y, out = self._matrices(*a), self._matrices(*b), self._matrices(*d)
        bias, (address, nbytes) = self._bias(described, d[0]), workspace
        lease, first = self.machine._lease(address) if nbytes else (None, 0)
        assert lease is None or first + nbytes <= lease.nbytes

        def run() -> None:
            accumulator = SUMS[described["sums"]][0]
            left = x.swapaxes(1, 2) if described.get(3) else x
            right = y.swapaxes(1, 2) if described.get(4) else y
            with np.errstate(all="ignore"):
                sums = left.astype(accumulator) @ right.astype(accumulator)
                sums = sums + out.astype(accumulator) if adds else sums
                sums = sums if bias is None else sums + bias.astype(accumulator)
                out[...] = (gelu(sums) if described.get(7, 0) & 32 else sums).astype(out.dtype)
            if lease is not None:
                lease.bytes[first : first + nbytes] = 0xEE

        target, _ = self.machine._lease(d[1])
        return run, [Use(target, 0, 0, False, True)]

    def _bias(self, described: dict[str, Any], result: dict[str, Any]) -> Any:
        """A column of d, which is added to each; None for none."""
        epilogue = described.get(7, 0)
        assert epilogue in (0, 4, 32, 36) and (not epilogue or result["kind"] != 1)
        if not epilogue & 4:
            return None
        lease, first = self.machine._lease(described[8])
        kind = np.dtype(TYPES[result["kind"]])
        assert first % kind.itemsize == 0 and first + result["rows"] * kind.itemsize <= lease.nbytes
        return np.ndarray((1, result["rows"], 1), kind, lease.bytes, first)

    def _matrices(self, described: dict[str, Any], place: int) -> Any:
        """(batch, rows, columns) in the memory of the machine."""
        lease, first = self.machine._lease(place)
        kind = np.dtype(TYPES[described["kind"]])
        count, batch = described.get(5, 1), described.get(6, 0) * kind.itemsize
        shape = (count, described["rows"], described["columns"])
        strides = (batch, kind.itemsize, described["leading"] * kind.itemsize)
        end = first + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + kind.itemsize
        assert math.prod(shape) and end <= lease.nbytes
        return np.ndarray(shape, kind, lease.bytes, first, strides)
