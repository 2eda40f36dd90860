"""Every function that NumPy has, too, over arrays of all shapes, dtypes and layouts, with infinities and NaN, against NumPy."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nnc
import nnc.numpy as nnp

NUMBERS = {
    "b": st.booleans(),
    "i": st.integers(-5, 5),
    "u": st.integers(0, 9),
    "f": st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.75, 100.0, np.inf, -np.inf, np.nan]),
    "g": st.floats(-4, 4, width=16),  # finite
    "c": st.complex_numbers(max_magnitude=5, allow_nan=False, allow_infinity=False, width=64),
}
DTYPES = {
    "b": ["bool"],
    "i": ["int64", "int32"],
    "u": ["uint8", "uint64"],
    "f": ["float64", "float32"],
    "g": ["float64"],
    "c": ["complex128"],
}
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@st.composite
def arrays(draw, kinds, shapes=SHAPES):
    """An array of one of the kinds, now and then with negative or large strides."""
    kind = draw(st.sampled_from(kinds))
    x = draw(hnp.arrays(draw(st.sampled_from(DTYPES[kind])), draw(shapes), elements=NUMBERS[kind]))
    layout = draw(st.sampled_from(["plain", "reversed", "transposed", "spread"]))
    if x.ndim and layout == "reversed":
        return np.ascontiguousarray(x[::-1])[::-1]
    if layout == "spread" and x.ndim:
        return np.repeat(x, 2, axis=-1)[..., ::2]
    return np.ascontiguousarray(x.T).T if layout == "transposed" else x


@st.composite
def partners(draw, kinds, x):
    """An array that broadcasts with x."""
    shape = draw(st.sampled_from([x.shape, (), x.shape[-1:], tuple(1 if i % 2 else n for i, n in enumerate(x.shape))]))
    return draw(arrays(kinds, st.just(shape)))


def words(text):
    return text.split()


# name -> the kinds of the operands
ONE = {
    **dict.fromkeys(words("abs absolute isfinite isinf isnan logical_not real imag iscomplex isreal"), "bifcu"),
    **dict.fromkeys(words("negative square positive conj conjugate"), "ifcu"),
    **dict.fromkeys(words("sqrt exp expm1 sin cos tan sinh cosh tanh arctan arcsinh log log2 log10 log1p exp2"), "fc"),
    **dict.fromkeys(words("reciprocal rint"), "fc"),
    **dict.fromkeys(words("cbrt fabs sign floor ceil trunc signbit isposinf isneginf deg2rad rad2deg radians degrees i0"), "f"),
    **dict.fromkeys(words("spacing sinc arcsin arccos arctanh arccosh modf frexp heaviside_half"), "f"),
    **dict.fromkeys(words("asin acos atan asinh acosh atanh angle nan_to_num"), "gc"),
    **dict.fromkeys(words("invert bitwise_invert bitwise_not"), "biu"),
    **dict.fromkeys(words("bitwise_count"), "iu"),
    **dict.fromkeys(words("ravel copy flip fliplr flipud transpose matrix_transpose squeeze"), "bifcu"),
    **dict.fromkeys(words("atleast_1d atleast_2d atleast_3d"), "bifcu"),
    **dict.fromkeys(words("ones_like zeros_like nonzero flatnonzero argwhere sort_complex ediff1d diagflat isrealobj"), "bifcu"),
    **dict.fromkeys(words("ndim shape size iscomplexobj array_str diff trace diagonal diag tril triu"), "ifcu"),
    "vander": "gc",
    **dict.fromkeys(words("rot90 unstack unwrap_finite"), "ig"),
    **dict.fromkeys(words("unique unique_values"), "biuf"),
}  # fmt: skip
TWO = {
    **dict.fromkeys(words("add multiply equal not_equal logical_and logical_or logical_xor array_equal array_equiv"), "bifcu"),
    **dict.fromkeys(words("subtract isclose allclose append outer"), "ifcu"),
    **dict.fromkeys(words("divide true_divide"), "fc"),
    **dict.fromkeys(words("less less_equal greater greater_equal maximum minimum"), "biuf"),
    **dict.fromkeys(words("fmax fmin fmod remainder mod"), "f"),
    **dict.fromkeys(words("arctan2 atan2 copysign hypot logaddexp logaddexp2 nextafter heaviside"), "f"),
    **dict.fromkeys(words("bitwise_and bitwise_or bitwise_xor"), "biu"),
    **dict.fromkeys(words("gcd lcm"), "iu"),
    **dict.fromkeys(words("kron polyadd polysub inner dot vdot"), "gc"),
    **dict.fromkeys(words("isin union1d"), "iu"),
}  # fmt: skip
ALONG = {
    **dict.fromkeys(words("sum prod cumsum cumprod"), "bifcu"),
    **dict.fromkeys(words("mean var std nansum nanprod nancumsum nancumprod"), "fc"),
    **dict.fromkeys(words("any all count_nonzero"), "bifcu"),
    **dict.fromkeys(words("max min amax amin argmax argmin ptp sort"), "iuf"),
    **dict.fromkeys(words("nanmax nanmin nanmean nanvar nanstd nanargmax nanargmin nanmedian median average"), "f"),
    **dict.fromkeys(words("flip concat_self delete_first repeat_twice"), "ifc"),
    **dict.fromkeys(words("squeeze roll_one"), "bifcu"),
}  # fmt: skip
STEPS = np.array([-1, 0, 2])
SPECIAL_ROWS = {
    "heaviside_half": lambda xp, x: xp.heaviside(x, 0.5),
    "unique_values": lambda xp, x: xp.sort(xp.unique_values(x)),  # NumPy's are in any order
    "unwrap_finite": lambda xp, x: xp.unwrap(x),
    "concat_self": lambda xp, x, axis: xp.concatenate([x, x], axis),
    "delete_first": lambda xp, x, axis: xp.delete(x, 0, axis),
    "repeat_twice": lambda xp, x, axis: xp.repeat(x, 2, axis),
    "roll_one": lambda xp, x, axis: xp.roll(x, 1, axis),
    "array_str": lambda xp, x: str(np.asarray(xp.ravel(x))),
}
# name -> the function of a module and an array, and its kinds
MORE = {
    "around": (lambda xp, x: (xp.around(x, 1), xp.around(x)), "g"),
    "round": (lambda xp, x: (xp.round(x, -1), xp.round(x)), "ig"),
    "clip": (lambda xp, x: (xp.clip(x, -1, 2), xp.clip(x, None, 1)), "if"),
    "where": (lambda xp, x: (xp.where(x > 0, x, -x), xp.where(x > 1, x, 0)), "if"),
    "select": (lambda xp, x: xp.select([x > 1, x > 0], [x, -x], 7), "if"),
    "choose": (lambda xp, x: xp.choose(abs(x) % 2, [x, -x]), "i"),
    "power": (lambda xp, x: (xp.power(x, 3), xp.pow(abs(x), x * 0 + 2)), "i"),
    "pow": (lambda xp, x: tuple(xp.pow(x, np.full(x.shape, e, x.dtype)) for e in (2.5, -1.0, 3.0, 0.25)), "f"),
    "float_power": (lambda xp, x: (xp.float_power(abs(x) + 0.5, 1.5), xp.float_power(abs(x) + 0.5, x)), "g"),
    "divmod": (lambda xp, x: xp.divmod(x, 3), "i"),
    "floor_divide": (lambda xp, x: (xp.floor_divide(x, 2), xp.floor_divide(x, -3)), "ig"),
    "left_shift": (lambda xp, x: (xp.left_shift(x, 2), xp.right_shift(x, 1)), "iu"),
    "right_shift": (lambda xp, x: (xp.bitwise_left_shift(x, 1), xp.bitwise_right_shift(x, 3)), "iu"),
    "ldexp": (lambda xp, x: (xp.ldexp(x, 3), xp.ldexp(x, np.int8(-2))), "f"),
    "full_like": (lambda xp, x: (xp.full_like(x, 3), xp.full_like(x, 1, dtype="float64")), "bifcu"),
    "expand_dims": (lambda xp, x: (xp.expand_dims(x, 0), xp.expand_dims(x, (0, -1))), "bifcu"),
    "moveaxis": (lambda xp, x: (xp.moveaxis(x, 0, -1), xp.rollaxis(x, -1), xp.swapaxes(x, 0, -1)), "if"),
    "permute_dims": (lambda xp, x: xp.permute_dims(x, tuple(range(x.ndim))[::-1]), "if"),
    "reshape": (lambda xp, x: (xp.reshape(x, (-1, 1)), xp.reshape(x, x.shape[::-1])), "bifcu"),
    "resize": (lambda xp, x: (xp.resize(x, (2, 3)), xp.resize(x, 0)), "if"),
    "broadcast_to": (lambda xp, x: xp.broadcast_to(x, (2, *x.shape)), "bifcu"),
    "broadcast_arrays": (lambda xp, x: tuple(xp.broadcast_arrays(x, x[..., :1], 1)), "if"),
    "tile": (lambda xp, x: (xp.tile(x, 2), xp.tile(x, (2, 1, 1, 2))), "bifcu"),
    "pad": (lambda xp, x: (xp.pad(x, 1), xp.pad(x, (0, 2), constant_values=3)), "if"),
    "roll": (lambda xp, x: (xp.roll(x, 2), xp.roll(x, -1)), "bifcu"),
    "stack": (lambda xp, x: (xp.stack([x, x]), xp.stack([x, x], -1), xp.vstack([x, x]), xp.hstack([x, x])), "bifcu"),
    "dstack": (lambda xp, x: (xp.dstack([x, x]), xp.column_stack([x, x]), xp.block([[x, x], [x, x]])), "if"),
    "concat": (lambda xp, x: (xp.concat([x, x]), xp.concatenate([x, x * 2.5], axis=None)), "if"),
    "split": (lambda xp, x: (*xp.split(x, [1]), *xp.array_split(x, 2), *xp.array_split(x, 4, -1)), "if"),
    "hsplit": (lambda xp, x: (*xp.hsplit(x, [1]), *xp.vsplit(x, [1])), "if"),
    "dsplit": (lambda xp, x: tuple(xp.dsplit(x, [1])), "if"),
    "argsort": (lambda xp, x: tuple(xp.argsort(x, axis=a, stable=True) for a in (-1, 0, None)), "f"),
    "lexsort": (lambda xp, x: xp.lexsort((x, -x)), "if"),
    "searchsorted": (lambda xp, x: tuple(xp.searchsorted(STEPS, x, side) for side in ("left", "right")), "if"),
    "digitize": (lambda xp, x: (xp.digitize(x, STEPS), xp.digitize(x, STEPS, right=True)), "if"),
    "take": (lambda xp, x: (xp.take(x, np.array([0, -1])), xp.take(x, np.array([[0]]), axis=-1)), "bifcu"),
    "take_along_axis": (lambda xp, x: xp.take_along_axis(x, np.zeros((1,) * x.ndim, int), 0), "bifcu"),
    "compress": (lambda xp, x: (xp.compress([True], x), xp.compress([False, True], x, -1), xp.extract(x > 0, x)), "if"),
    "insert": (lambda xp, x: (xp.insert(x, 0, 7), xp.insert(x, 0, 7, axis=0)), "ig"),
    "unravel_index": (lambda xp, x: xp.unravel_index(x, (4, 5)), "u"),
    "ravel_multi_index": (lambda xp, x: xp.ravel_multi_index((x, x), (10, 11)), "u"),
    "bincount": (lambda xp, x: (xp.bincount(xp.ravel(x)), xp.bincount(xp.ravel(x), minlength=12)), "u"),
    "quantile": (lambda xp, x: (xp.quantile(x, 0.3), xp.quantile(x, np.array([0.0, 0.9]), axis=-1)), "g"),
    "percentile": (lambda xp, x: (xp.percentile(x, 30), xp.nanpercentile(x, 30, axis=0), xp.nanquantile(x, 0.2)), "g"),
    "interp": (lambda xp, x: xp.interp(x, np.array([-2.0, 0.0, 3.0]), np.array([1.0, -1.0, 2.0])), "g"),
    "trapezoid": (lambda xp, x: (xp.trapezoid(x), xp.trapezoid(x, dx=2.0, axis=0)), "gc"),
    "polyval": (lambda xp, x: xp.polyval(np.array([2.0, -1.0, 0.5]), x), "gc"),
    "cov": (lambda xp, x: xp.cov(x, bias=True), "g"),
    "cross": (lambda xp, x: xp.cross(xp.broadcast_to(x[..., :1], (*x.shape[:-1], 3)), np.array([1.0, 2.0, 3.0])), "g"),
    "gradient": (lambda xp, x: (xp.gradient(x, axis=0), xp.gradient(x, 0.5, axis=-1)), "g"),
    "convolve": (lambda xp, x: (xp.convolve(xp.ravel(x), [1, 2]), xp.correlate(xp.ravel(x), [1, 2], "same")), "ig"),
    "matmul": (lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)), "igc"),
    "einsum": (lambda xp, x: (xp.einsum("...i,...i->...", x, x), xp.einsum("...i->i...", x)), "igc"),
    "vecdot": (lambda xp, x: (xp.vecdot(x, x), xp.vecdot(x, x, axis=0)), "igc"),
    "tensordot": (lambda xp, x: (xp.tensordot(x, x, 0), xp.tensordot(x, x, ((0,), (0,)))), "igc"),
    "meshgrid": (lambda xp, x: tuple(xp.meshgrid(xp.ravel(x), np.arange(2))), "if"),
    "astype": (lambda xp, x: (xp.astype(x, "float64"), xp.astype(x, "bool"), xp.astype(x, "complex128")), "bigu"),
    "partition": (lambda xp, x: (xp.sort(xp.partition(x, 0)), xp.take_along_axis(x, xp.argpartition(x, 0)[..., :1], -1)), "i"),
    "apply_along_axis": (lambda xp, x: xp.apply_along_axis(xp.cumsum, -1, x), "ig"),
    "apply_over_axes": (lambda xp, x: xp.apply_over_axes(xp.sum, x, (0,)), "ig"),
    "trim_zeros": (lambda xp, x: xp.trim_zeros(xp.ravel(x)), "i"),
    "histogram": (lambda xp, x: xp.histogram(x, np.array([-3.0, -0.5, 0.0, 2.0])), "g"),
    "packbits": (lambda xp, x: (xp.packbits(x), xp.packbits(x, axis=-1)), "biu"),
    "empty_like": (lambda xp, x: xp.zeros_like(xp.empty_like(x)), "bifcu"),
    "nan_to_num": (lambda xp, x: xp.nan_to_num(x, nan=1.5, posinf=9.0, neginf=-9.0), "f"),
}  # fmt: skip

CASES = {
    **{
        ("one", name): (SPECIAL_ROWS.get(name, lambda xp, x, n=name: getattr(xp, n)(x)), kinds)
        for name, kinds in ONE.items()
    },
    **{("more", name): row for name, row in MORE.items()},
}
AXES = {
    **dict.fromkeys(words("argwhere argsort lexsort take apply_over_axes packbits partition"), (1, 9)),
    **dict.fromkeys(words("tril triu"), (2, 9)),
    **dict.fromkeys(words("polyadd polysub vander"), (1, 1)),
}
NOT_EMPTY = words("take_along_axis median nanmedian vander apply_along_axis partition")
EXAMPLES = settings(max_examples=max(6, settings.default.max_examples // 5))


def compare(got, want, exact=1e-10):
    """Equal in shape, in dtype (but float32 for floats made of integers) and in value."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            compare(one, other, exact)
        return
    if not isinstance(want, (np.ndarray, np.generic)):
        assert (got.tolist() if isinstance(got, nnc.Array) else got) == want
        return
    got = np.asarray(got)
    assert got.shape == want.shape
    if got.dtype != want.dtype:
        assert (got.dtype.name, want.dtype.name) in {
            ("float32", "float64"),
            ("complex64", "complex128"),
            ("float32", "float16"),
        }
    rough = (
        2e-3
        if want.dtype == np.float16
        else 2e-5
        if "32" in got.dtype.name + want.dtype.name or got.dtype.itemsize == 8 != want.dtype.itemsize
        else exact
    )
    np.testing.assert_allclose(got, want, rtol=rough, atol=rough)


def as_nnc_takes_it(name, x):
    """Drops operands that NumPy takes and nnc refuses: numbers for arrays with axes, and averages of nothing."""
    least, most = AXES.get(name, (0, 9))
    assume(least <= x.ndim <= most)
    assume(x.size or name not in NOT_EMPTY)
    return x


def by_numpy(function, *args):
    """Returns NumPy's result; where it refuses the arguments the example is dropped."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(np, *args)
        except (ValueError, TypeError, IndexError, ZeroDivisionError):
            assume(False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1])
@EXAMPLES
@given(data=st.data())
def test_a_function_of_an_array_is_numpys(case, data):
    function, kinds = CASES[case]
    x = as_nnc_takes_it(case[1], data.draw(arrays(kinds)))
    want = by_numpy(function, x)
    compare(function(nnp, x), want)


@pytest.mark.parametrize("name", TWO)
@EXAMPLES
@given(data=st.data())
def test_a_function_of_two_arrays_is_numpys(name, data):
    x = as_nnc_takes_it(name, data.draw(arrays(TWO[name])))
    y = as_nnc_takes_it(name, data.draw(partners(TWO[name], x)))
    assume(
        x.dtype.kind in "fc"
        or y.dtype.kind in "fc"
        or "uint64" not in (x.dtype.name, y.dtype.name)
        or x.dtype == y.dtype
    )
    want = by_numpy(lambda xp, x, y: getattr(xp, name)(x, y), x, y)
    compare(getattr(nnp, name)(x, y), want)


@pytest.mark.parametrize("name", ALONG)
@EXAMPLES
@given(data=st.data())
def test_a_function_along_an_axis_is_numpys(name, data):
    x = as_nnc_takes_it(name, data.draw(arrays(ALONG[name])))
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    function = SPECIAL_ROWS.get(name, lambda xp, x, axis: getattr(xp, name)(x, axis=axis))
    want = by_numpy(function, x, axis)
    compare(function(nnp, x, axis), want, 1e-9)


def test_every_function_has_a_row_here_or_a_test_beside():
    folders = (Path(__file__).parent, Path(__file__).parents[2] / "unit" / "numpy")
    beside = "".join(path.read_text() for folder in folders for path in folder.glob("test_*.py"))
    rows = {*ONE, *TWO, *ALONG, *MORE}
    functions = [name for name in nnp.__all__ if inspect.isfunction(getattr(nnp, name))]
    assert len(functions) > 300
    missing = [n for n in functions if n not in rows and not re.search(rf'nnp\.{n}\b|"{n}"', beside)]
    assert missing == []
