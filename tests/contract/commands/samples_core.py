"""Rows for the families elementwise, constants, shape, reduce and control. A command without its own takes its family's default."""

from __future__ import annotations

from inspect import signature

import numpy as np

from nnc.commands import constants, elementwise, parts, special, trigonometry
from nnc.graph import Command, infer
from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(7)
_X = _RNG.uniform(-2, 2, (3, 4))
_Y = _RNG.uniform(-2, 2, (3, 4))
_POSITIVE = _RNG.uniform(0.3, 2, (3, 4))
_UNIT = _RNG.uniform(-0.9, 0.9, (3, 4))
_INTS = _RNG.integers(-9, 9, (3, 4))
_BOOLS = _X > 0
_COMPLEX = _X + 1j * _Y

# Operands where the default (numbers from -2 to 2) lies outside the domain or at a kink.
_OPERANDS: dict[str, tuple[object, ...]] = {
    "length": (_POSITIVE,),
    "sqrt": (_POSITIVE,), "rsqrt": (_POSITIVE,), "cbrt": (_POSITIVE,), "log": (_POSITIVE,), "log2": (_POSITIVE,),
    "log10": (_POSITIVE,), "log1p": (_POSITIVE,), "asin": (_UNIT,), "acos": (_UNIT,), "atanh": (_UNIT,),
    "acosh": (_POSITIVE + 1.2,), "pow": (_POSITIVE, _Y), "tan": (_UNIT,), "div": (_X, _POSITIVE),
    "floor_divide": (_X, _POSITIVE), "remainder": (_X, _POSITIVE), "fmod": (_X, _POSITIVE), "reciprocal": (_POSITIVE,),
    "bitwise_not": (_INTS,), "bitwise_and": (_INTS, _INTS[::-1].copy()), "bitwise_or": (_INTS, _INTS[::-1].copy()),
    "bitwise_xor": (_INTS, _INTS[::-1].copy()), "shift_left": (_INTS, np.abs(_INTS)), "shift_right": (_INTS, np.abs(_INTS)),
    "real": (_COMPLEX,), "imag": (_COMPLEX,), "conj": (_COMPLEX,), "select": (_BOOLS, _X, _Y), "erfinv": (_UNIT,),
    "lgamma": (_POSITIVE + 0.2,), "digamma": (_POSITIVE + 0.2,), "gcd": (_INTS, _INTS[::-1].copy()),
    "lcm": (_INTS, _INTS[::-1].copy()), "bit_count": (_INTS,), "ldexp": (_X, _INTS % 5 - 2.0),
}  # fmt: skip

_PARAMS: dict[str, list[dict[str, object]]] = {
    "integer_pow": [{"exponent": n} for n in (-2, 0, 1, 2, 3)],
    "convert": [{"dtype": np.dtype(d)} for d in ("float64", "float32", "int32", "bool")],
    "full": [{"shape": (2, 3), "dtype": np.dtype("float32"), "value": 1.5}],
    "iota": [{"shape": (2, 3), "dtype": np.dtype("int32"), "axis": 1}],
}

# Operands to differentiate in, where the derivative is not the function's (zero by definition) or does not exist.
_DIFFERENTIABLE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        ("stop_gradient", "with_slope", "floor", "ceil", "trunc", "round", "floor_divide", "exponent", "sign"), ()
    ),
    "ldexp": (0,),
}


def _elementwise(command: Command) -> list[Sample]:
    default = (_X, _Y, _POSITIVE)[: command.arity]
    operands = _OPERANDS.get(command.name, default)
    single = {"dtypes": ("float32", "float64")} if command.name == "complex" else {}
    differentiable = {"differentiable": _DIFFERENTIABLE[command.name]} if command.name in _DIFFERENTIABLE else {}
    rows = [Sample(command.name, operands, params, **single, **differentiable) for params in _params_of(command)]
    if command.name == "convert":
        rows = [
            Sample("convert", operands, p, differentiable=None if i == 0 else ())
            for i, p in enumerate(_PARAMS["convert"])
        ]
    return rows


def _params_of(command: Command) -> list[dict[str, object]]:
    taken = signature(infer[command]).parameters.values()
    needed = {each.name for each in taken if each.kind is each.KEYWORD_ONLY and each.default is each.empty}
    given = _PARAMS.get(command.name, [{}])
    assert all(needed <= params.keys() for params in given), f"give values of {needed} to {command.name!r} in _PARAMS"
    return given


def _commands(module: object) -> list[Command]:
    found = {value.name: value for value in vars(module).values() if isinstance(value, Command)}
    return list(found.values())


_PARTS = {"shape": (5, 4), "dtype": np.dtype("float64"), "starts": ((0, 0), (4, 0))}

_SHAPE = [
    Sample("broadcast_to", (_X,), {"shape": (2, 3, 4)}),
    Sample("broadcast_to", (_X[:, :1],), {"shape": (3, 4)}),
    Sample("broadcast_to", (_X,), {"shape": (3, 5, 4), "axes": (0, 2)}),
    Sample("broadcast_to", (np.float64(2.0),), {"shape": (2, 0, 3)}),
    Sample("reshape", (_X,), {"shape": (2, 6)}),
    Sample("reshape", (_X[:1, :1],), {"shape": ()}),
    Sample("transpose", (_X,), {"permutation": (1, 0)}),
    Sample("transpose", (_RNG.standard_normal((2, 3, 4)),), {"permutation": (2, 0, 1)}),
    Sample("reorder", (_RNG.standard_normal((2, 3, 4)),), {"permutation": (0, 2, 1)}),
    Sample("slice", (_X,), {"start": (1, 0), "limit": (3, 4), "stride": (1, 2)}),
    Sample("slice", (_X,), {"start": (1, 1), "limit": (1, 4), "stride": (1, 1)}),
    Sample("flip", (_X,), {"axes": (0, 1)}),
    Sample("flip", (_X,), {"axes": (-1,)}),
    Sample("concatenate", (_X, _Y[:1]), {"axis": 0}),
    Sample("concatenate", (_X, _Y[:, :2], _X[:, :0]), {"axis": 1}),
    Sample("assemble", (_X[:2, :2], _Y[:1]), _PARTS, dtypes=("float64",)),
    Sample("pad", (_X, np.float64(0.5)), {"low": (1, 0), "high": (0, 2), "interior": (0, 1)}),
    Sample("pad", (_X[:0], np.float64(0.5)), {"low": (1, 0), "high": (1, 0), "interior": (2, 0)}),
]  # fmt: skip

_DISTINCT = _RNG.permutation(24).reshape(2, 3, 4) / 7.0 - 1.5

_REDUCE = [
    *(
        Sample(name, (_DISTINCT,), {"axes": axes})
        for name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod")
        for axes in ((1,), (0, 2), ())
    ),
    Sample("reduce_sum", (_X[:0],), {"axes": (0,)}),
    Sample("reduce_sum", (_X,), {"axes": (-1,)}),
    *(Sample(name, (_DISTINCT,), {"axes": (-1, 0)}) for name in ("reduce_max", "reduce_prod")),
    *(Sample(name, (_X,), {"axis": -1}) for name in ("cumsum", "cumprod", "cummax")),
    Sample("argmax", (_DISTINCT,), {"axis": -2}),
    Sample("reduce_prod", (np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0]]),), {"axes": (1,)}),
    *(Sample(name, (_BOOLS,), {"axes": (1,)}) for name in ("reduce_and", "reduce_or")),
    *(Sample(name, (_DISTINCT,), {"axis": axis}) for name in ("argmax", "argmin") for axis in (0, 2)),
    *(Sample(name, (_DISTINCT,), {"axis": axis}) for name in ("cumsum", "cumprod", "cummax", "cummin") for axis in (0, 2)),
    Sample("cumprod", (np.array([[0.0, 2.0, 3.0], [1.0, 0.0, 4.0]]),), {"axis": 1}),
]  # fmt: skip

_FIT = [
    Sample("fit", (np.asarray([0, 3, 100, 127]),), {"dtype": np.dtype(d), "where": "f"}) for d in ("int8", "uint64")
]
_BESSEL = (np.asarray([-40.0, -1.5, 0.25, 3.0, 29.0]),)
_SPECIAL = [
    *(Sample(name, _BESSEL) for name in ("i0e", "i1e")),
    *(Sample(name, _BESSEL, {"n": n}) for name in ("ine", "ie_moment") for n in (0, 1, 3)),
]

_ELEMENTWISE = dict.fromkeys(
    [c for family in (elementwise, constants, trigonometry, parts) for c in _commands(family)]
    + [special.erf, special.erfc]
)
_FUSED = [
    Sample("multiply_add", (_X, _Y, _POSITIVE), dtypes=("float32", "float64"))
]  # lowering writes it on these alone
SAMPLES = [
    *_FIT,
    *_SPECIAL,
    *_FUSED,
    *(row for command in _ELEMENTWISE for row in _elementwise(command)),
    *_SHAPE,
    *_REDUCE,
]
