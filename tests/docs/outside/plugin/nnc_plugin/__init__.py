"""A package outside nnc: it adds a command, a column, a pass and a backend without touching nnc.

`install()` registers them. A real package would do so when it is imported; here the tests choose when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands import elementwise as ew
from nnc.commands.rules import batch_leading, check_dtype
from nnc.graph import (
    Attribute,
    Command,
    Graph,
    Kernel,
    TensorSpec,
    add_kernel,
    apply_rules,
    register,
    register_pass,
    rewrite_rule,
)
from nnc.graph.rules import Derivative, Rules, Value


@dataclass(frozen=True)
class Plugin:
    """The additions of `install`."""

    softsign: Command
    latency: Attribute[int]
    calls: list[tuple[TensorSpec, ...]]  # operands that the second backend has run


# -- a command ---------------------------------------------------------------------------------------------------------


def softsign_infer(x: TensorSpec, *, scale: float) -> TensorSpec:
    """One operand of any float dtype."""
    check_dtype("softsign", x, dtypes.is_float, "floating-point")
    return x


def softsign_reference(x: Any, *, scale: float) -> Any:
    """scale · x / (1 + |x|), with 16-bit floats computed in float32."""
    wide = x.astype(dtypes.accumulator(x.dtype))
    return (scale * wide / (1 + np.abs(wide))).astype(x.dtype)


def softsign_jvp(primals: tuple[Value, ...], tangents: tuple[Value | None, ...], outputs: Any, *, scale: float) -> Any:
    """scale / (1 + |x|)² · t, written with ordinary operators, so that it can be differentiated again."""
    (x,), (t,) = primals, tangents
    return (None if t is None else t * scale / (1 + abs(x)) ** 2,)


def add_softsign() -> Command:
    """Registers the command softsign."""
    return register(
        "softsign",
        Rules(
            infer=softsign_infer,
            reference=softsign_reference,
            derivative=Derivative(softsign_jvp),
            batch=batch_leading("softsign"),
        ),
    )


# -- a column, and a pass that reads it ----------------------------------------------------------------------------------


def add_latency(softsign: Command) -> Attribute[int]:
    """Adds the column "latency" (cycles for an element) and fills it for commands of nnc and for our own."""
    latency: Attribute[int] = Attribute("latency", "cycles for one element")
    for name, cycles in {"add": 4, "mul": 4, "exp": 20}.items():
        latency.set(name, cycles)
    latency.set(softsign, 15)

    @register_pass("estimate_latency", provides=["cycles"])
    def estimate_latency(graph: Graph, options: Any) -> Graph:
        """Adds up the cycles of all nodes; a command without an entry costs one."""
        cycles = sum(latency.get(node.command, 1) * node.outputs[0].spec.size for node in graph.walk())
        return graph.with_attrs(cycles=cycles)

    return latency


# -- a pass that every compilation runs ----------------------------------------------------------------------------------


@rewrite_rule(exact=False, sole=True)
def product_of_exponentials(x: Value, y: Value) -> Any:
    """Rounds otherwise, and does not overflow where one factor does."""
    return ew.mul(ew.exp(x), ew.exp(y)), ew.exp(ew.add(x, y))


def add_pass() -> None:
    """Registers a pass that is made of an equation."""

    @register_pass("join_exponentials", concerns=("exp",), phase="rewrite")
    def join_exponentials(graph: Graph, options: Any) -> Graph:
        """Turns products of exponentials into one exponential."""
        return apply_rules(graph, [product_of_exponentials])


# -- a backend ---------------------------------------------------------------------------------------------------------


def add_backend(calls: list[tuple[TensorSpec, ...]]) -> None:
    """Adds the backend "inplace_numpy" for tanh on non-empty float32 and float64 arrays."""

    def supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
        return specs[0].dtype in (dtypes.float32, dtypes.float64) and specs[0].size > 0

    def run(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
        calls.append(tuple(TensorSpec(x.shape, x.dtype) for x in inputs))
        np.tanh(inputs[0], out=outputs[0])

    add_kernel("tanh", Kernel("inplace_numpy", run, supports, priority=50))


def install() -> Plugin:
    """Registers everything; a second time raises, as any name registered twice does."""
    softsign = add_softsign()
    calls: list[tuple[TensorSpec, ...]] = []
    plugin = Plugin(softsign, add_latency(softsign), calls)
    add_pass()
    add_backend(calls)
    return plugin
