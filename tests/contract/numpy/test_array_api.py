"""The Array API standard (2024.12), function by function, against its strict reference implementation."""

from __future__ import annotations

import inspect
import itertools
import warnings

import numpy as np
import pytest

import nnc.numpy as nnp
from tests.contract.numpy.special_values import DTYPES, check, values

xs = pytest.importorskip("array_api_strict")


def strictly(function, *args, **kwargs):
    """Returns the strict implementation's result, in NumPy; None where it refuses the arguments."""
    wrapped = [xs.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return to_numpy(function(*wrapped, **kwargs))
        except (TypeError, ValueError, OverflowError):
            return None


def to_numpy(x):
    return tuple(to_numpy(part) for part in x) if isinstance(x, (tuple, list)) else np.asarray(x)


# -- names and signatures ----------------------------------------------------------------------------------------------

MODULES = [("", xs, nnp), ("fft.", xs.fft, nnp.fft), ("linalg.", xs.linalg, nnp.linalg)]
FUNCTIONS = [
    (prefix + name, getattr(module, name), ours)
    for prefix, module, ours in MODULES
    for name in module.__all__
    if inspect.isfunction(getattr(module, name)) and "strict" not in name
]


@pytest.mark.parametrize(("name", "function", "ours"), FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_a_function_takes_the_standards_arguments_by_place_and_by_name(name, function, ours):
    theirs = list(inspect.signature(function).parameters.values())
    own = list(inspect.signature(getattr(ours, name.split(".")[-1])).parameters.values())
    by_name = {p.name: p for p in own}
    placed = [p for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for place, p in enumerate(theirs):
        if p.kind == p.POSITIONAL_ONLY:
            assert place < len(placed)
            assert p.default is not p.empty or placed[place].default is p.empty or name == "where"
        elif p.kind == p.VAR_POSITIONAL:
            assert own[place].kind == p.VAR_POSITIONAL
        else:
            assert by_name[p.name].kind in (p.kind, p.POSITIONAL_OR_KEYWORD)
            assert p.default is p.empty or by_name[p.name].default is not p.empty
            assert p.kind == p.KEYWORD_ONLY or own.index(by_name[p.name]) == place


def test_arrays_have_the_standards_methods_and_attributes():
    x, strict = nnp.ones((2, 2)), xs.ones((2, 2))
    in_place = {
        f"__i{name}__"
        for name in [
            "add",
            "and",
            "floordiv",
            "lshift",
            "matmul",
            "mod",
            "mul",
            "or",
            "pow",
            "rshift",
            "sub",
            "truediv",
            "xor",
        ]
    }
    missing = {name for name in dir(strict) if not hasattr(x, name) and (name[:2] == "__" or name[0] != "_")}
    assert missing <= in_place | {"__buffer__"}  # arrays are immutable: x += y binds x anew
    for name in ("__dlpack__", "to_device", "__array_namespace__"):
        wanted = inspect.signature(getattr(type(strict), name)).parameters.values()
        own = inspect.signature(getattr(type(x), name)).parameters
        assert [p.name for p in wanted if p.kind == p.KEYWORD_ONLY and p.name not in own] == []


# -- elementwise -------------------------------------------------------------------------------------------------------

UNARY = """
    abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp floor imag isfinite isinf isnan log log1p
    log2 log10 logical_not negative positive real reciprocal round signbit sin sinh square sqrt tan tanh trunc
""".split()  # noqa: SIM905
BINARY = """
    add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide
    greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply nextafter
    not_equal pow remainder subtract
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", [*UNARY, "expm1"])
def test_a_function_of_one_array_has_the_standards_dtypes_and_special_values(name):
    tried = 0
    for dtype in DTYPES:
        x = values(dtype)
        if name in ("expm1", "tan", "tanh") and x.dtype.kind == "c":
            # elsewhere the strict implementation is wrong: see tests/contract/numpy/test_standard.py
            x = x[np.isfinite(x) & ((x != 0) | ~np.signbit(x.real))]
        for part in (x, x[:0], x[1:2].reshape(()), x[::-2]):
            want = strictly(getattr(xs, name), part)
            if want is not None:
                if name == "square" and part.dtype.kind == "c":
                    want.real += 0  # a zero there has the sign of x * x, of NumPy's only on some processors
                check(getattr(nnp, name)(part), want)
                tried += 1
    assert tried >= 4


ORDER = ("greater", "greater_equal", "less", "less_equal", "maximum", "minimum")


def pairs(name, first, second):
    """All pairs of special values but those for which the standard leaves the result open."""
    x, y = (
        v.ravel() for v in np.meshgrid(values(first)[:60:3] if "c" in first else values(first), values(second)[::-1])
    )
    if "shift" in name:
        y = np.clip(y, 0, 8 * y.dtype.itemsize - 1)
    if name == "pow" and y.dtype.kind in "iu" and x.dtype.kind in "iu":
        y = (np.abs(y.astype(np.float64)) % 5).astype(y.dtype)
    if name in ("floor_divide", "remainder"):
        # with infinities the strict implementation does as NumPy does, not as the standard prefers: see the test below
        infinite = np.isinf(x) | np.isinf(y) if name == "floor_divide" else np.zeros(x.shape, bool)
        keep = y != 0 if y.dtype.kind in "iu" and x.dtype.kind in "iu" else ~infinite
        x, y = x[keep], y[keep]
    return x, y


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_arrays_has_the_standards_promotion_and_special_values(name):
    tried = 0
    for first, second in itertools.product(DTYPES, DTYPES):
        if "complex" in first + second and first != second:
            continue
        x, y = (
            pairs(name, first, second)
            if first != "bool" or "shift" not in name
            else (values(first), values(second)[:2])
        )
        want = strictly(getattr(xs, name), x, y)
        if want is not None:
            check(getattr(nnp, name)(x, y), want)
            tried += 1
    assert tried >= 1


@pytest.mark.parametrize("name", BINARY)
def test_a_python_number_takes_the_arrays_dtype_on_either_side(name):
    tried = 0
    for dtype in DTYPES:
        x = np.ones((2, 1), dtype)
        for number in (True, 2, 0.5, 1j):
            if name in ORDER and (x.dtype.kind == "c" or number == 1j):
                continue  # complex numbers have no order
            for args in ((x, number), (number, x)):
                want = strictly(getattr(xs, name), *args)
                if want is not None:
                    check(getattr(nnp, name)(*args), want)
                    tried += 1
    assert tried >= 2


# -- everything else ---------------------------------------------------------------------------------------------------

A = np.array([[3, 1, 2, 1], [0, 5, 0, 2], [4, 4, 1, 0]])
ARRAYS = {
    "matrix": A, "empty": A[:0], "no columns": A[:, :0], "number": np.array(3), "vector": A[0], "cube": A.reshape(3, 2, 2),
}  # fmt: skip
AXES = [{}, {"axis": 0}, {"axis": -1}, {"axis": 0, "keepdims": True}]
TABLE: dict[str, list[dict[str, object]]] = {
    "sum": [*AXES, {"axis": (0, 1)}, {"axis": ()}, {"dtype": "float64"}],
    "prod": [*AXES, {"axis": ()}],
    "mean": AXES, "std": [*AXES, {"correction": 1}], "var": [*AXES, {"correction": 1, "axis": 1}], "min": AXES, "max": AXES,
    "any": AXES, "all": [*AXES, {"axis": ()}], "count_nonzero": AXES, "argmax": AXES, "argmin": AXES,
    "cumulative_sum": [{"axis": 0}, {"axis": -1, "include_initial": True}, {"axis": 1, "dtype": "int8"}],
    "cumulative_prod": [{"axis": 0}, {"axis": -1, "include_initial": True}],
    "diff": [{}, {"axis": 0}, {"n": 2}, {"n": 0}],
    "sort": [{"axis": a, "descending": d, "stable": s} for a in (0, -1) for d in (True, False) for s in (True, False)],
    "argsort": [{"axis": a, "descending": d, "stable": True} for a in (0, -1) for d in (True, False)],
    "nonzero": [{}], "unique_all": [{}], "unique_counts": [{}], "unique_inverse": [{}], "unique_values": [{}],
    "flip": [{}, {"axis": 0}, {"axis": (0, 1)}, {"axis": -1}], "matrix_transpose": [{}], "tril": [{}, {"k": 1}, {"k": -9}],
    "triu": [{}, {"k": -1}, {"k": 9}], "unstack": [{}, {"axis": -1}], "repeat": [{"repeats": 2}, {"repeats": 3, "axis": 0}],
    "roll": [{"shift": 1}, {"shift": -5, "axis": 0}, {"shift": (1, 2), "axis": (0, 1)}],
    "expand_dims": [{"axis": 0}, {"axis": -1}],
    "reshape": [{"shape": (-1,)}, {"shape": (2, 6)}, {"shape": (1, -1, 2), "copy": True}], "tile": [{"repetitions": (2, 1, 2)}],
    "permute_dims": [{"axes": (1, 0)}, {"axes": ()}], "broadcast_to": [{"shape": (2, 3, 4)}, {"shape": (3, 0)}],
    "moveaxis": [{"source": 0, "destination": -1}], "zeros_like": [{}, {"dtype": "int8"}],
    "full_like": [{"fill_value": 2}, {"fill_value": 1, "dtype": "int8"}],
    "ones_like": [{}], "clip": [{"min": 1}, {"min": 1, "max": 2}],
    "astype": [{"dtype": "int16"}, {"dtype": "bool"}, {"dtype": "float32"}, {"dtype": "complex64"}],
}  # fmt: skip
POSITIONAL = {
    "repeat": ("repeats",), "reshape": ("shape",), "tile": ("repetitions",), "permute_dims": ("axes",), "broadcast_to": ("shape",),
    "moveaxis": ("source", "destination"), "full_like": ("fill_value",), "astype": ("dtype",), "roll": ("shift",),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_a_function_of_an_array_agrees_with_the_standard_in_all_shapes_and_dtypes(name):
    tried = 0
    for options, dtype, x in itertools.product(
        TABLE[name], ("bool", "uint8", "int32", "float64", "complex64"), ARRAYS.values()
    ):
        if (name == "reshape" and x.size == 0) or (x.ndim == 0 and options.get("axis") in (0, -1, 1)):
            continue  # NumPy's leniency
        if (x.ndim == 0 and name == "diff") or ("complex" in dtype and options.get("dtype") in ("int8", "float64")):
            continue  # operands that nnc refuses
        places = [options[key] for key in POSITIONAL.get(name, ())]
        rest = {key: value for key, value in options.items() if key not in POSITIONAL.get(name, ())}
        strict = {key: getattr(xs, v) if key == "dtype" else v for key, v in rest.items()}
        named = [getattr(xs, v) if name == "astype" else v for v in places]
        x = x.astype(dtype)
        want = strictly(getattr(xs, name), x, *named, **strict)
        if want is None or (
            name in ("std", "var", "mean") and (dtype != "float64" or (want.dtype.kind == "f" and np.isnan(want).any()))
        ):
            continue
        check(getattr(nnp, name)(x, *places, **rest), want)
        tried += 1
    assert tried >= 4


def test_functions_of_several_arrays_agree_with_the_standard():
    b, v = A[::-1] * 2, A[0]
    steps = np.array([1, 3, 3, 5])
    calls = [
        ("searchsorted", (steps, A), {"side": "right"}),
        ("searchsorted", (steps[::-1].copy(), v), {"sorter": np.array([3, 1, 2, 0])}),
        ("take", (A, np.array([0, 2])), {"axis": 1}), ("take", (v, np.array([1, 1])), {}), ("vecdot", (A * 1j, A * 1j), {}),
        ("take_along_axis", (A, np.array([[0], [1], [2]])), {"axis": 1}),
        ("matmul", (A, b.T.copy()), {}), ("vecdot", (A, b), {"axis": 0}),
        ("tensordot", (A, b), {"axes": ((0, 1), (0, 1))}), ("tensordot", (A, b.T.copy()), {"axes": 1}),
        ("where", (A > 1, A, b), {}),
        ("where", (A > 1, A, 7), {}), ("where", (A > 1, 0.5, A * 1.0), {}), ("clip", (A, v, 4), {}), ("isin", (A, v), {}),
        ("clip", (A.astype(np.int8), 1, 2), {}), ("diff", (A,), {"prepend": A[:, :1], "axis": 1}),
    ]  # fmt: skip
    for name, args, options in calls:
        strict = {key: xs.asarray(x) if isinstance(x, np.ndarray) else x for key, x in options.items()}
        want = strictly(getattr(xs, name), *args, **strict)
        if want is not None:  # an older version of the standard
            check(getattr(nnp, name)(*args, **options), want)
    for name in ("concat", "stack"):
        check(getattr(nnp, name)([A, b * 1.0], axis=1), np.asarray(getattr(np, name)([A, b * 1.0], axis=1)))
    check(nnp.concat([A, v], axis=None), np.concatenate([A, v], axis=None))
    check(tuple(nnp.meshgrid(v, v[:2], indexing="ij")), tuple(np.meshgrid(v, v[:2], indexing="ij")))
    check(tuple(nnp.broadcast_arrays(A, v, np.array(1))), tuple(np.broadcast_arrays(A, v, np.array(1))))


# -- dtypes, facts -----------------------------------------------------------------------------------------------------


def test_promotion_is_the_standards():
    for first, second in itertools.product(DTYPES, DTYPES):
        try:
            want = xs.result_type(getattr(xs, first), getattr(xs, second))
        except TypeError:
            continue
        assert nnp.result_type(getattr(nnp, first), getattr(nnp, second)) == np.asarray(xs.zeros(1, dtype=want)).dtype
        same_kind = any(
            nnp.isdtype(first, k) and nnp.isdtype(second, k)
            for k in ("bool", "integral", "real floating", "complex floating")
        )
        assert not same_kind or nnp.can_cast(first, second) == xs.can_cast(getattr(xs, first), getattr(xs, second))
    x = nnp.ones(2, dtype="int8")
    assert [nnp.result_type(x, 1), nnp.result_type("float32", 1j), nnp.result_type(x, "uint8", 2)] == [
        "int8",
        "complex64",
        "int16",
    ]


def test_kinds_and_limits_are_the_standards():
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"]
    for dtype in DTYPES:
        for kind in [*kinds, ("integral", "bool"), (), *DTYPES]:
            strict = getattr(xs, kind) if kind in DTYPES else kind
            found = nnp.isdtype(getattr(nnp, dtype), getattr(nnp, kind) if kind in DTYPES else kind)
            assert found is bool(xs.isdtype(getattr(xs, dtype), strict))
        if dtype.startswith(("float", "complex")):
            info, want = nnp.finfo(getattr(nnp, dtype)), np.finfo(dtype)
            assert [type(info.bits), *map(type, (info.eps, info.max, info.min, info.smallest_normal))] == [int] + [
                float
            ] * 4
            assert (info.bits, info.eps, info.max, info.dtype) == (
                want.bits,
                float(want.eps),
                float(want.max),
                want.dtype,
            )
        elif dtype != "bool":
            limits = nnp.iinfo(nnp.asarray([1], dtype=dtype))
            assert (type(limits.bits), limits.max, limits.min) == (int, np.iinfo(dtype).max, np.iinfo(dtype).min)


def test_the_namespace_describes_itself():
    info, strict = nnp.__array_namespace_info__(), xs.__array_namespace_info__()
    assert info.default_dtypes(device="cpu").keys() == strict.default_dtypes().keys()
    assert nnp.argsort(nnp.arange(3)).dtype == info.default_dtypes()["indexing"]
    assert nnp.asarray(1.0, device=info.default_device()).dtype == info.default_dtypes()["real floating"]
    for kind in (
        None,
        "bool",
        "signed integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
        ("bool", "integral"),
    ):
        assert strict.dtypes(kind=kind).keys() == info.dtypes(kind=kind).keys()
        assert all(getattr(nnp, name) == dtype for name, dtype in info.dtypes(kind=kind).items())
    limit = info.capabilities()["max dimensions"]
    assert nnp.ones((1,) * limit).ndim == limit
    assert (nnp.pi, nnp.e, nnp.inf, nnp.newaxis) == (np.pi, np.e, np.inf, None)
