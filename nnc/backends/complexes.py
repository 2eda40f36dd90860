"""Commands on complex numbers that are printed from scalar expressions, those that have a meaning for complex numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from nnc.base import dtypes
from nnc.graph import Command, TensorSpec, infer_specs
from nnc.graph.registry import scalar
from nnc.lower.kernels.math.complexes import (
    BY_LOGARITHMS,
    Complex,
    can_be_complex,
    evaluate_complex,
    integer_power,
)
from nnc.lower.kernels.math.terms import Term
from nnc.lower.kernels.scalars import parse
from nnc.lower.plan.stages import Step

_POWER = "integer_pow"


def computation(step: Step) -> Callable[..., Complex | Term]:
    """Returns the function that gives a result's element from the operands' elements."""
    if step.command.name == _POWER:
        return lambda x: integer_power(x, step.params["exponent"])
    parsed = parse(scalar[step.command])
    return lambda *operands: evaluate_complex(parsed, operands)


def add_complex(add: Callable[..., None], native: Callable[..., Any], most: int = sys.maxsize) -> None:
    """Adds the kernel of all such commands where a number is complex; for `most` elements, since others do more as fast."""

    def follow(target: Command) -> None:
        def supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
            every = (*specs, *infer_specs(target, specs, params))
            return any(dtypes.is_complex(spec.dtype) for spec in every) and every[-1].size <= most

        if can_be_complex(parse(scalar[target])):
            add(target.name, native, supports)

    def supports_power(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
        (x,) = specs
        return dtypes.is_complex(x.dtype) and x.size <= most and abs(params["exponent"]) < BY_LOGARITHMS

    scalar.follow(follow)
    add(_POWER, native, supports_power)
