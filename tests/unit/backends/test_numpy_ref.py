from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc  # noqa: F401  (registers every command)
from nnc.backends.choose import choose_kernel
from nnc.backends.numpy_ref import reference_kernel
from nnc.base.dtypes import BY_NAME
from nnc.commands.rules import ufunc_of
from nnc.errors import BackendError, InternalError, NncError
from nnc.graph import TensorSpec, command, infer_specs, reference, register, spec_of
from nnc.graph.registry import numpy_call
from nnc.graph.rules import Rules


def run(name: str, inputs: list[Any], **params: Any) -> list[Any]:
    """The kernel's outputs, written over garbage."""
    specs = tuple(map(spec_of, inputs))
    outputs = [np.full(spec.shape, 77, spec.dtype) for spec in infer_specs(command(name), specs, params)]
    with np.errstate(all="ignore"):
        reference_kernel(command(name), specs, params).run(inputs, outputs, params)
    return outputs


def values(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * 3
    if dtype.startswith("float") and x.size > 3:
        x.flat[:4] = [np.nan, np.inf, -np.inf, -0.0]
    if dtype.startswith("complex"):
        x = x + 1j * rng.normal(size=shape)
    with np.errstate(all="ignore"):
        return np.abs(x).astype(dtype) if dtype.startswith("uint") else x.astype(BY_NAME[dtype])


UFUNCS = ["tan", "tanh", *(target.name for target, call in numpy_call.items() if isinstance(call, np.ufunc))]


def check_same(found: Any, expected: Any) -> None:
    """Equal but for the last bit, which depends on how NumPy walks the elements."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found.astype(np.complex128), expected.astype(np.complex128), rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", sorted(UFUNCS))
def test_writing_into_the_result_agrees_with_the_reference(name: str) -> None:
    """In every dtype that the command takes, on plain, strided, empty and 0-d operands."""
    accepted = 0
    for dtype in BY_NAME:
        for shape in ((3, 4), (0, 2), ()):
            inputs = [values(dtype, shape, seed) for seed in range(command(name).arity or 0)]
            for operands in (inputs, [np.repeat(x[None], 2, 0)[::-1][0].T for x in inputs]):
                try:
                    found = run(name, operands)
                except NncError:
                    continue
                accepted += 1
                expected = reference[command(name)](*operands)
                check_same(found[0], expected)
    assert accepted


@pytest.mark.parametrize(
    ("name", "dtype"), [("tan", "float32"), ("mul", "complex64"), ("equal", "int8"), ("tanh", "float64")]
)
def test_commands_that_are_one_function_of_numpy_copy_nothing(name: str, dtype: str) -> None:
    specs = (TensorSpec((2,), dtype),) * (command(name).arity or 0)
    assert isinstance(ufunc_of(command(name), specs, {}), np.ufunc)


@pytest.mark.parametrize(
    ("name", "dtype"), [("tan", "complex64"), ("tanh", "complex128"), ("erf", "float32"), ("select", "float32")]
)
def test_commands_that_no_function_of_numpy_is_run_their_reference(name: str, dtype: str) -> None:
    """NumPy's complex tangents differ at infinities; erf is a function of Python's numbers."""
    assert ufunc_of(command(name), (TensorSpec((2,), dtype),) * (command(name).arity or 0), {}) is None


CONTRACTIONS: list[tuple[tuple[int, ...], tuple[int, ...], Any, Any]] = [
    ((2, 3), (3, 4), ((1,), (0,)), ((), ())),
    ((3, 2), (4, 3), ((0,), (1,)), ((), ())),
    ((5, 2, 3), (5, 3, 4), ((2,), (1,)), ((0,), (0,))),
    ((2, 5, 3), (4, 3, 5), ((2,), (1,)), ((1,), (2,))),
    ((2, 3, 4), (3, 4, 5), ((1, 2), (0, 1)), ((), ())),
    ((3,), (3,), ((0,), (0,)), ((), ())),
    ((2, 0), (0, 3), ((1,), (0,)), ((), ())),
]


@pytest.mark.parametrize("dtype", ["int32", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize(("left", "right", "contract", "batch"), CONTRACTIONS)
def test_contractions_agree_with_the_reference(left: Any, right: Any, contract: Any, batch: Any, dtype: str) -> None:
    x, y = (np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(BY_NAME[dtype]) for shape in (left, right))
    expected = reference[command("dot")](x, y, contract=contract, batch=batch)
    found = run("dot", [x, y], contract=contract, batch=batch)[0]
    check_same(found, expected)


@pytest.mark.parametrize(
    ("name", "operands", "params"),
    [
        ("copy", ["int8"], {}),
        ("convert", ["float32"], {"dtype": np.dtype("int32")}),
        ("convert", ["complex64"], {"dtype": np.dtype("bool")}),
        ("convert", ["bfloat16"], {"dtype": np.dtype("float64")}),
        ("full", [], {"shape": (2, 3), "dtype": np.dtype("float32"), "value": 2.5}),
        ("reshape", ["float32"], {"shape": (6, 2)}),
        ("concatenate", ["bfloat16", "bfloat16"], {"axis": 1}),
        ("concatenate", ["float32"] * 3, {"axis": -1}),
        ("reduce_sum", ["float32"], {"axes": (0,)}),
        ("sigmoid", ["float32"], {}),
    ],
)
def test_commands_that_are_no_ufunc_agree_with_the_reference(name: str, operands: list[str], params: Any) -> None:
    inputs = [values(dtype, (4, 3), seed).T.copy().T for seed, dtype in enumerate(operands)]
    with np.errstate(all="ignore"):
        expected = reference[command(name)](*inputs, **params)
    check_same(run(name, inputs, **params)[0], expected)


@pytest.mark.usefixtures("own_registries")
def test_a_reference_that_breaks_its_shape_rule_is_a_bug_of_nnc() -> None:
    register("test_wrong", Rules(infer=lambda x: x, reference=lambda x: x[:1]))
    with pytest.raises(InternalError, match="test_wrong"):
        run("test_wrong", [np.ones(3)])


@pytest.mark.usefixtures("own_registries")
def test_a_command_without_kernel_and_reference_is_refused() -> None:
    nothing = register("test_nothing", Rules(infer=lambda x: x))
    with pytest.raises(BackendError, match="test_nothing"):
        choose_kernel(nothing, (TensorSpec((2,), "float32"),), {})
