"""Checks that a rewrite rule is true, by evaluating both sides on random inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from nnc.base import dtypes
from nnc.errors import ArgumentError, InternalError, user_error
from nnc.graph.graph import Graph, NDArray, Symbol
from nnc.graph.registry import reference
from nnc.graph.rewrite import finds
from nnc.graph.rewrite_rule import RewriteRule, Sample
from nnc.graph.spec import TensorSpec

_DRAWS = 8


def check_rule(rule: RewriteRule, samples: Sequence[Sample] | None = None, *, seed: int = 0) -> None:
    """Checks that a rule is true: that it finds its own left side, and that both sides agree on random inputs.

    Sides are evaluated with the commands' references. Inputs of an exact rule include zeros of both signs, infinities, NaN
    and the extreme integers, and its sides must agree bit for bit (but for the payload of NaN); other rules are checked on
    finite numbers up to rounding.

    Args:
        rule: the rule to check.
        samples: specs to check, by default the rule's.
        seed: the seed of the random inputs.

    Raises:
        RuleError: the rule is false, or does not apply to a sample.
        ArgumentError: a sample fails the rule's condition.

    Example:
        >>> from nnc.commands import elementwise as ew
        >>> @nnc.graph.rewrite_rule()
        ... def double_negative(x):
        ...     return ew.neg(ew.neg(x)), x
        >>> check_rule(double_negative, [nnc.graph.sample(TensorSpec((3,), "float32"))])
    """
    generator = np.random.default_rng(seed)
    for case in rule.samples if samples is None else samples:
        shown = {f"variable {i}": spec for i, spec in enumerate(case.specs)} | dict(case.params)
        if rule.when is not None and not rule.when(*case.specs, **case.params):
            problem = "a sample does not fulfil the rule's condition."
            advice = "check the rule on samples for which when=... holds."
            raise user_error(ArgumentError, f"rule {rule.name}", problem, operands=shown, fix=advice)
        equation = rule.instantiate(case.specs, case.params)
        if not finds(rule, equation.left):
            raise rule.error("it does not find its own left side.", "add a sample of this form to the rule.", shown)
        for _ in range(_DRAWS):
            inputs = [_random_array(generator, spec, special=rule.exact) for spec in case.specs]
            for a, b in zip(_evaluate(equation.left, inputs), _evaluate(equation.right, inputs), strict=True):
                if not (_identical(a, b) if rule.exact else _close(a, b)):
                    values = {"inputs": [x.tolist() for x in inputs], "left": a.tolist(), "right": b.tolist()}
                    fix = "mend the rule" + (", or state exact=False." if rule.exact else ".")
                    raise rule.error("the sides differ.", fix, shown | values)


def _evaluate(graph: Graph, inputs: Sequence[NDArray]) -> list[NDArray]:
    """Returns the outputs of `graph` by the commands' references."""
    values: dict[Symbol, Any] = dict(zip(graph.inputs, inputs, strict=True)) | dict(graph.constants)
    for node in graph.nodes:
        if node.graphs:
            raise InternalError(f"{node.command.name}: rules with sub-graphs cannot be evaluated here")
        with np.errstate(all="ignore"):
            result = reference[node.command](*(values[symbol] for symbol in node.inputs), **node.params)
        values.update(zip(node.outputs, result if isinstance(result, tuple) else (result,), strict=True))
    return [np.asarray(values[symbol]) for symbol in graph.outputs]


def _random_array(generator: np.random.Generator, spec: TensorSpec, *, special: bool) -> NDArray:
    dtype, shape = spec.dtype, spec.shape
    if dtypes.is_bool(dtype):
        return np.asarray(generator.integers(0, 2, shape)).astype(dtype)
    if dtypes.is_integer(dtype):
        info = np.iinfo(dtype)
        values = np.asarray(generator.integers(0 if info.min == 0 else -9, 10, shape)).astype(dtype)
        corners = np.asarray([0, 1, info.min, info.max], dtype)
    elif dtypes.is_complex(dtype):
        parts = [
            _random_array(generator, spec.update(dtype=dtypes.real_dtype(dtype)), special=special) for _ in range(2)
        ]
        out = np.empty(shape, dtype)
        out.real, out.imag = parts
        return out
    else:
        values = np.asarray(generator.normal(size=shape)).astype(dtype)
        corners = np.asarray([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]).astype(dtype)
    if special:
        values = np.where(generator.random(shape) < 0.5, values, generator.choice(corners, shape))
    return values


def _identical(a: NDArray, b: NDArray) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if dtypes.is_complex(a.dtype):
        return _identical(a.real, b.real) and _identical(a.imag, b.imag)
    if not dtypes.is_float(a.dtype):
        return bool(np.array_equal(a, b))
    a, b = a.astype(np.float64), b.astype(np.float64)  # exact for every float dtype
    numbers = ~np.isnan(a)
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[numbers]), np.signbit(b[numbers])))


def _close(a: NDArray, b: NDArray) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not dtypes.is_inexact(a.dtype):
        return bool(np.array_equal(a, b))
    tolerance = 256 * float(ml_dtypes.finfo(dtypes.real_dtype(a.dtype)).eps)  # type: ignore[no-untyped-call]
    wide = np.complex128 if dtypes.is_complex(a.dtype) else np.float64
    return bool(np.allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance, equal_nan=True))
