"""Arrays given to generated programs, as expressions of NumPy that print as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import nnc
from nnc.base import dtypes

NDArray = np.ndarray[Any, Any]

_LAYOUTS = {  # `{x}` is an array of the right shape; the result has its elements, elsewhere in memory
    "rows": "{x}",
    "columns": "np.ascontiguousarray({x}.T).T",
    "reversed": "np.ascontiguousarray({x}[::-1])[::-1]",
    "every second": "np.repeat({x}, 2, -1)[..., ::2]",
    "offset": "np.concatenate([{x}[:1], {x}])[1:]",
}
LAYOUTS = tuple(_LAYOUTS)
_POWERS = {"huge": (0.4, 0.95), "tiny": (-0.95, -0.4), "wide": (-0.3, 0.3)}  # exponents, as shares of the largest one
WILD = tuple(_POWERS)


@dataclass(frozen=True, slots=True)
class Input:
    """An array given to a program.

    `kind` says how its elements are drawn: "grid" (few bits, so that sums and products of a few are exact), "uniform", "special"
    (with NaN, infinities and signed zeros), "denormal" (with numbers about the smallest normal one), "extreme" (integers of all
    sizes), "huge" and "tiny" (numbers whose squares overflow and underflow), "wide" (numbers of all sizes), "ones", "literal"
    (`elements`), "number" (a weak scalar, as Python numbers are), or "python" (the Python numbers `elements`, one for each `k`).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "grid"
    seed: int = 0
    layout: str = "rows"
    elements: Any = None

    @property
    def is_number(self) -> bool:
        """Whether it is a number, weak and without a shape."""
        return self.kind in ("number", "python")

    def source(self) -> str:
        """The expression of the array, in which `k` numbers the sets of inputs."""
        if self.kind == "python":
            return f"{self.elements}[k]"
        if self.kind == "number":
            number = f"({self.seed} * 37 + k * 11) % 13 - 6"
            return f"nnc.asarray({f'({number}) / 4' if self.dtype == 'float32' else number}).as_weak()"
        return f"nnc.asarray({self.elements_source()})"

    def elements_source(self) -> str:
        """The expression of the elements, as NumPy's array."""
        x = self._elements()
        return _LAYOUTS[self.layout].format(x=x) if self.layout != "rows" and self.shape else x

    def _elements(self) -> str:
        if 0 in self.shape or self.kind == "zeros":
            return f"np.zeros({self.shape}, {self.dtype!r})"
        if self.kind == "ones":
            return f"np.ones({self.shape}, {self.dtype!r})"
        if self.kind == "literal":
            return f"np.array({_literal(self.elements)}, {self.dtype!r})"
        dtype, draw = dtypes.BY_NAME[self.dtype], f"np.random.default_rng([{self.seed}, k])"
        if dtypes.is_complex(dtype):
            return f"({self._reals(draw, (*self.shape, 2))} @ [1, 1j]).astype({self.dtype!r})"
        if dtypes.is_float(dtype):
            return f"np.asarray({self._reals(draw, self.shape)}).astype({self.dtype!r})"
        return f"np.asarray({draw}.integers({self._range(dtype)}, {self.shape})).astype({self.dtype!r})"

    def _reals(self, draw: str, shape: tuple[int, ...]) -> str:
        if self.kind == "uniform":
            return f"{draw}.uniform(-2, 2, {shape})"
        if self.kind == "special":
            return f"{draw}.choice([0.0, -0.0, 1.5, -0.5, 3.0, np.nan, np.inf, -np.inf], {shape})"
        if self.kind == "denormal":
            return f"{draw}.choice({[0.0, 1.5, -3.0, *_about_smallest(self.dtype)]}, {shape})"
        if self.kind in _POWERS:
            least, most = (round(share * _range_of(self.dtype), 1) for share in _POWERS[self.kind])
            return f"np.power(10, {draw}.uniform({least}, {most}, {shape})) * {draw}.choice([-1, 1], {shape})"
        return f"({draw}.integers(-8, 9, {shape}) / 4)"

    def _range(self, dtype: dtypes.DType) -> str:
        if dtypes.is_bool(dtype):
            return "0, 2"
        if self.kind == "extreme":
            info = np.iinfo(dtype)
            least, most = max(info.min, -(2**62)), min(info.max, 2**62)
            return f"{least}, {most}"
        return "0, 9" if dtype in dtypes.UNSIGNED else "-5, 6"

    def array(self, k: int = 0) -> Any:
        """The array, or the Python number."""
        with np.errstate(all="ignore"):
            found: Any = eval(self.source(), {"np": np, "nnc": nnc, "k": k})
            return found


def _range_of(dtype: str) -> float:
    """The power of ten of the largest number that has a reciprocal."""
    finfo: Any = ml_dtypes.finfo
    return float(-np.log10(float(finfo(dtypes.real_dtype(dtypes.BY_NAME[dtype])).smallest_normal)))


def _about_smallest(dtype: str) -> list[float]:
    """Denormal numbers of a dtype, and the smallest normal one."""
    finfo: Any = ml_dtypes.finfo
    info = finfo(dtypes.real_dtype(dtypes.BY_NAME[dtype]))
    least, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    return [least, -least, 0.5 * normal, -0.75 * normal, normal, -normal]


def literal(name: str, x: NDArray) -> Input:
    """An input that holds the elements of `x`, of any origin."""
    wide = x.astype(np.float64) if dtypes.is_float(x.dtype) else x
    return Input(name, x.shape, x.dtype.name, "literal", elements=_frozen(wide.tolist()))


def _frozen(x: Any) -> Any:
    return tuple(map(_frozen, x)) if isinstance(x, list) else x


def _literal(x: Any) -> str:
    if isinstance(x, tuple):
        return f"[{', '.join(map(_literal, x))}]"
    return repr(x).replace("nan", "np.nan").replace("inf", "np.inf")
