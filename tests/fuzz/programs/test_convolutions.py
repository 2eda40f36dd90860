"""Generated programs of small convolutions, compiled, agree with the references of their commands.

Windows may lie wholly in the padding, or be wider than the input. Sums, tangents and derivatives add convolutions to one another,
so that kernels are joined and share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base import dtypes
from nnc.compiled.object_code import lowered_for, object_options
from nnc.graph import reference

NDArray = np.ndarray[Any, Any]
TOLERANCE = {
    "float32": 1e-4,
    "float64": 1e-10,
    "bfloat16": 6e-2,
}  # of sums of a few hundred products, rounded several times
CASES = 12


@dataclass(frozen=True)
class Case:
    """A convolution of x with w under some settings."""

    x: NDArray
    w: NDArray
    settings: dict[str, Any]

    @classmethod
    def draw(cls, rng: np.random.Generator, dtype: str, channels: Sequence[int] = (1, 2, 3, 8, 17)) -> Case:
        """A convolution whose windows fit into the padded input, to one of so many channels a group."""
        while True:
            axes, groups = int(rng.choice([1, 2, 2, 3])), int(rng.choice([1, 1, 1, 2, 3]))
            inputs, outputs = int(rng.choice([1, 2, 5, 8, 16])), int(rng.choice(channels))
            spatial = rng.integers(1, (18, 9, 6)[axes - 1], axes, endpoint=True).tolist()
            kernel = rng.integers(1, 3, axes, endpoint=True).tolist()
            stride, dilation = (rng.choice([1, 1, 2, 3], axes).tolist() for _ in range(2))
            padding = rng.choice([0, 0, 1, 2, 3, 5], (axes, 2)).tolist()
            fits = all(
                n + sum(pad) >= d * (k - 1) + 1 for n, k, pad, d in zip(spatial, kernel, padding, dilation, strict=True)
            )
            if fits:
                break
        last, kind = bool(rng.random() < 0.6), dtypes.BY_NAME[dtype]
        batch, width = int(rng.choice([1, 2])), inputs * groups
        shape = (batch, *spatial, width) if last else (batch, width, *spatial)
        x, w = (rng.normal(size=n).astype(kind) for n in (shape, (outputs * groups, inputs, *kernel)))
        settings = {
            "stride": tuple(stride), "padding": tuple(map(tuple, padding)), "dilation": tuple(dilation), "groups": groups,
            "layout": "NHWC" if last else "NCHW",
        }  # fmt: skip
        return cls(x, w, settings)

    def conv(self, x: Any, w: Any) -> Any:
        return nn.conv(x, w, **self.settings)

    def like(self, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
        """Another input and weight."""
        x, w = (rng.normal(size=a.shape).astype(a.dtype) for a in (self.x, self.w))
        return x, w


def check(
    case: Case, function: Callable[..., Any], operands: Sequence[NDArray], compiled: Callable[..., Any] = nnc.compile
) -> None:
    """The compiled function agrees with the references of its commands."""
    found = nnc.tree.leaves(compiled(function)(*operands))
    graph = nnc.make_graph(function)(*(nnc.ShapeDtypeStruct(x.shape, x.dtype) for x in operands))
    expected = graph.evaluate(operands, run_reference)
    for x, y in zip(found, expected, strict=True):
        wide, wanted = (np.asarray(a).astype(np.float64) for a in (x, y))
        tolerance = TOLERANCE[case.x.dtype.name]
        scale = np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(wide, wanted, tolerance, tolerance * scale, err_msg=str(case.settings))


def run_reference(target: Any, operands: Sequence[Any], params: dict[str, Any], graphs: Any) -> list[Any]:
    assert not graphs
    return [reference[target](*operands, **params)]


def one(case: Case, rng: np.random.Generator) -> None:
    check(case, case.conv, (case.x, case.w))


def sum_of_two(case: Case, rng: np.random.Generator) -> None:
    check(case, lambda x, w, y, v: case.conv(x, w) + case.conv(y, v), (case.x, case.w, *case.like(rng)))


def tangent(case: Case, rng: np.random.Generator) -> None:
    def jvp(x: Any, w: Any, dx: Any, dw: Any) -> Any:
        return nnc.jvp(case.conv, (x, w), (dx, dw))

    check(case, jvp, (case.x, case.w, *case.like(rng)))


def gradients(case: Case, rng: np.random.Generator) -> None:
    def both(x: Any, w: Any) -> Any:
        return nnc.grad(lambda x, w: nnp.sum(nnp.tanh(case.conv(x, w))), argnums=(0, 1))(x, w)

    check(case, both, (case.x, case.w))


def gradients_of_two(case: Case, rng: np.random.Generator) -> None:
    """Both convolutions read x, and both weights add to its gradient."""

    def total(x: Any, w: Any, v: Any) -> Any:
        return nnp.sum(case.conv(x, w) * case.conv(x, v))

    check(case, nnc.grad(total, argnums=(0, 1, 2)), (case.x, case.w, case.like(rng)[1]))


def second_derivative(case: Case, rng: np.random.Generator) -> None:
    def squares(x: Any, w: Any) -> Any:
        gradients = nnc.grad(lambda x, w: nnp.sum(case.conv(x, w) ** 2), argnums=(0, 1))(x, w)
        return sum(nnp.sum(g * g) for g in gradients)

    check(case, nnc.grad(squares, argnums=(0, 1)), (case.x, case.w))


def transposed(case: Case, rng: np.random.Generator) -> None:
    """The transposed convolution from an output to the shape of x."""
    y = rng.normal(size=nnc.eval_shape(case.conv, case.x, case.w).shape).astype(case.x.dtype)
    first = 1 if case.settings["layout"] == "NHWC" else 2
    names = ("stride", "padding", "dilation")
    rows = zip(
        case.x.shape[first:], y.shape[first:], case.w.shape[2:], *(case.settings[name] for name in names), strict=False
    )
    more = [n + sum(pad) - (m - 1) * s - d * (k - 1) - 1 for n, m, k, s, pad, d in rows]

    def back(y: Any, w: Any) -> Any:
        return nn.conv_transpose(y, w, output_padding=more, **case.settings) * 2 + 1

    check(case, back, (y, case.w))


FORMS = (one, sum_of_two, tangent, gradients, gradients_of_two, second_derivative, transposed)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_programs_of_convolutions_agree_with_the_references(dtype: str, form: Callable[..., None]) -> None:
    rng = np.random.default_rng([FORMS.index(form), len(dtype)])
    for _ in range(CASES):
        form(Case.draw(rng, dtype), rng)


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 1, 16, 8), (8, 8, 1, 3), {"padding": ((0, 0), (3, 3)), "layout": "NHWC"}),
        ((1, 13, 5, 3), (3, 3, 5, 1), {"stride": (3, 2), "padding": ((2, 1), (2, 2)), "layout": "NHWC"}),
        ((1, 1, 1, 4, 4), (1, 1, 2, 1, 1), {"padding": ((1, 1), (0, 0), (0, 0)), "dilation": (2, 1, 1)}),
    ],
    ids=["a row", "a strided image", "a depth window around the input"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_windows_that_lie_wholly_in_the_padding(shapes: Any, dtype: str) -> None:
    """The last one killed the process on some processors, where the dtype is bfloat16."""
    rng = np.random.default_rng(0)
    x_shape, w_shape, settings = shapes
    x, w = (rng.normal(size=shape).astype(dtypes.BY_NAME[dtype]) for shape in (x_shape, w_shape))
    for form in FORMS[:-1]:
        form(Case(x, w, settings), rng)


# -- printed convolutions, as in exported programs ---------------------------------------------------------------------


FIGURES: dict[str, dict[str, dict[str, int]]] = {  # of the machine for which kernels are printed
    "as they are": {},
    "images between zeros": {"convolutions": {"most_boxes": 0}},
    "short panels": {
        "products": {"panel_terms": 16, "unpacked_bytes": 0, "packed_rows": 1, "part_volume": 1 << 9, "least_rows": 4}
    },
}


def printed(function: Callable[..., Any], *, figures: str) -> Callable[..., Any]:
    """The function compiled without libraries."""
    options = object_options("native")
    machine = options.machine
    assert machine is not None
    changed = {name: getattr(machine, name)._replace(**values) for name, values in FIGURES[figures].items()}
    options = options.update(machine=replace(machine, **changed))
    return lambda *args: lowered_for(function, args, options).compile()(*args)


@pytest.mark.parametrize("figures", FIGURES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_printed_convolutions_agree_with_the_references(dtype: str, figures: str) -> None:
    """Captured weights are kept in panels; those of arguments are packed in each call, and their gradients are printed."""
    rng = np.random.default_rng([len(dtype), len(figures)])
    compiled = partial(printed, figures=figures)
    for _ in range(CASES):
        case = Case.draw(rng, dtype, (1, 3, 17, 32, 64))

        def gradient(x: Any, case: Case = case) -> Any:
            return nnc.grad(lambda x: nnp.sum(nnp.tanh(case.conv(x, case.w))))(x)

        check(case, lambda x, case=case: case.conv(x, case.w), (case.x,), compiled)
        check(case, gradient, (case.x,), compiled)
        check(
            case,
            nnc.grad(lambda x, w, case=case: nnp.sum(case.conv(x, w) ** 2), argnums=(0, 1)),
            (case.x, case.w),
            compiled,
        )
