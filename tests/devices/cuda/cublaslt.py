# ruff: noqa: N802, N815 (names of C functions)
"""A stand-in for cuBLASLt: C functions that record their descriptions, check them, and multiply on the machine's memory."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np

from nnc.devices.sim import Use
from tests.devices.cuda.machine import Machine

TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
SUMS = {
    68: (np.float32, 0),
    70: (np.float64, 1),
    77: (np.float32, 0),
    75: (np.float32, 0),
}  # accumulator, type of the factors


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
            each.algo[0] = 1 + operation.value
            for position, number in enumerate((5, 6, 7, 8)):
                each.algo[1 + position] = preference[number]
            each.algo[5], each.algo[6] = preference[1], place
        count._obj.value = self.plans
        return 0

    def cublasLtGetVersion(self) -> int:
        return 130100

    def cublasLtMatmul(
        self, handle: Any, operation: Any, alpha: Any, a: Any, of_a: Any, b: Any, of_b: Any, beta: Any, c: Any, of_c: Any, d: Any,
        of_d: Any, algo: Any, workspace: Any, nbytes: Any, stream: Any,
    ) -> int:  # fmt: skip
        described = dict(self.known[operation.value])
        assert (alpha._obj.value, c.value) == (1, d.value) and beta._obj.value in (0, 1)
        chosen = list(algo._obj)
        assert chosen[0] == 1 + operation.value and chosen[5] == nbytes.value
        for place, alignment in zip((a, b, c, d), chosen[1:5], strict=True):
            assert place.value % alignment == 0
        left, right, result = (self.known[each.value] for each in (of_a, of_b, of_d))
        epilogue = described.get(7, 0)
        self.calls.append(
            {
                "sums": described["sums"], "a": left, "b": right, "d": result, "workspace": nbytes.value, "epilogue": epilogue,
                "place": chosen[6], "adds": beta._obj.value == 1,
            }
        )  # fmt: skip
        adds = self.calls[-1]["adds"]

        def bind() -> Any:
            return self._bind(described, (left, a), (right, b), (result, d), (workspace.value, nbytes.value), adds)

        self.machine.queue(stream.value, "cublasLtMatmul", bind)
        return 0

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

        target, _ = self.machine._lease(d[1].value)
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

    def _matrices(self, described: dict[str, Any], place: Any) -> Any:
        """(batch, rows, columns) in the memory of the machine."""
        lease, first = self.machine._lease(place.value)
        kind = np.dtype(TYPES[described["kind"]])
        count, batch = described.get(5, 1), described.get(6, 0) * kind.itemsize
        shape = (count, described["rows"], described["columns"])
        strides = (batch, kind.itemsize, described["leading"] * kind.itemsize)
        end = first + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + kind.itemsize
        assert math.prod(shape) and end <= lease.nbytes
        return np.ndarray(shape, kind, lease.bytes, first, strides)
