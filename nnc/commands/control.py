"""Commands that own sub-graphs. Their derivative and batching rules trace those, so they stand in nnc/trace.

Each computes what its first sub-graph computes (column `inlines`), so lowering may put the sub-graph's nodes in its place;
they differ in how they are differentiated.
"""

from __future__ import annotations

from typing import Any

from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import Attribute, Command, Graph, TensorSpec, register

inlines: Attribute[bool] = Attribute("inlines", "the command computes what its first sub-graph computes")


def _infer(name: str) -> Any:
    def infer(*specs: TensorSpec, graphs: tuple[Graph, ...], **params: Any) -> tuple[TensorSpec, ...]:
        expected = graphs[0].input_specs
        if len(specs) != len(expected):
            raise user_error(
                ArgumentError, name, f"its graph takes {len(expected)} inputs, {len(specs)} were given.",
                fix="pass one value for each input of the sub-graph.",
            )  # fmt: skip
        for i, (spec, want) in enumerate(zip(specs, expected, strict=True)):
            if (spec.shape, spec.dtype) != (want.shape, want.dtype):
                raise user_error(
                    ShapeError, name, f"input {i} does not match its graph.", operands={"given": spec, "expected": want},
                    fix="convert the value, or make the sub-graph for its spec.",
                )  # fmt: skip
        return graphs[0].output_specs

    return infer


def _reference(*arrays: Any, graphs: tuple[Graph, ...], **params: Any) -> list[Any]:
    return [x.data if hasattr(x, "data") and hasattr(x, "spec") else x for x in graphs[0].evaluate(arrays)]


def _register(name: str) -> Command:
    return register(name, None, None, infer=_infer(name), reference=_reference, inlines=True)


call = _register("call")  # graphs: (function,); barrier=True: it recomputes on purpose what exists already
checkpoint = _register("checkpoint")  # graphs: (function,); reverse mode recomputes it
custom_jvp = _register("custom_jvp")  # rule: (primals, tangents) -> (outputs, tangents)
custom_vjp = _register("custom_vjp")  # rule: likewise, with tangents that only transpose


# A linear map that is known only by its transpose: `pull(cotangents) -> cotangents of the operands`. It lives in the linear
# graph that reverse mode transposes; nnc.trace.backward runs it, in both directions.
pull_only = register("pull_only", None, None, infer=lambda *specs, pull, outputs: outputs)
