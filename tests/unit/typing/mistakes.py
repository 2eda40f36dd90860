"""Programs that must not type-check: the comment above a line has the code of its error, and words of its message."""

from __future__ import annotations

import nnc
import nnc.numpy as nnp
from nnc.graph import Derivative, Rules, TensorSpec, register


@nnc.compile
def scaled(x: nnc.Array, factor: float) -> nnc.Array:
    return x * factor


class Model:
    @nnc.compile(contract=True)
    def __call__(self, x: nnc.Array) -> nnc.Array:
        return x

    @nnc.compile
    def loss(self, x: nnc.Array) -> nnc.Array:
        return x.sum()


def loss(params: dict[str, nnc.Array], x: nnc.Array) -> nnc.Array:
    return x * params["w"]


def pair(carry: tuple[nnc.Array, nnc.Array]) -> tuple[nnc.Array, nnc.Array]:
    return carry


def mistakes(x: nnc.Array, params: dict[str, nnc.Array]) -> None:
    # arg-type: "str"; expected "Array"
    scaled("a", 2.0)
    # call-arg: Missing positional argument "factor"
    scaled(x)
    # call-arg: Unexpected keyword argument "size"
    scaled(x, 2.0, size=3)
    # call-overload: "compile"
    nnc.compile(loss, donate=0)
    # arg-type: "dict[str, Array]"; expected "Array"
    Model().loss(params)
    # call-arg: Missing positional argument "x"
    Model().loss()
    # arg-type: "int"; expected "dict[str, Array]"
    nnc.grad(loss)(3, x)
    # call-arg: Too few arguments
    nnc.grad(loss)(params)
    # arg-type: "list[int]"; expected "Array"
    nnc.vmap(loss)(params, [1])
    # arg-type: expected "dict[str, Array]"
    nnc.value_and_grad(loss)(x, params)
    # assignment: expression has type "dict[str, Array]", variable has type "Array"
    _gradient: nnc.Array = nnc.grad(loss)(params, x)
    # operator: Unsupported operand types
    nnc.grad(loss, argnames="x")(params, x) + 1
    # arg-type: Argument 1 to "while_loop"
    nnc.while_loop(pair, pair, (x, x))
    # arg-type: Argument 1 to "scan"
    nnc.scan(pair, (x, x), x)
    # arg-type: Argument 2 to "cond"
    nnc.cond(True, pair, loss, x)
    # arg-type: "str"; expected "Array
    nnp.sin("a")
    # call-arg: Unexpected keyword argument "dim"
    nnp.sum(x, dim=0)
    # attr-defined: "Array" has no attribute "summ"
    x.summ()
    # index: Invalid index type "int" for "Array"
    x[0] = 1
    # attr-defined: Module has no attribute "compiel"
    nnc.compiel(loss)
    # attr-defined: Module has no attribute "sinn"
    nnp.sinn(x)
    # arg-type: "str"; expected "Array
    x + "a"


def rules() -> None:
    # arg-type: Argument "infer" to "Rules" has incompatible type "str"
    Rules(infer="x")
    # arg-type: Argument "batch" to "Rules" has incompatible type
    Rules(batch=one_operand)
    # arg-type: Argument "derivative" to "Rules" has incompatible type
    Rules(derivative=one_operand)
    # arg-type: Argument 1 to "Derivative" has incompatible type
    Derivative(one_operand)
    # arg-type: Argument "alias" to "Rules" has incompatible type "str"; expected "AsView | None"
    Rules(alias="view")
    # call-arg: Unexpected keyword argument "inferr" for "Rules"
    Rules(inferr=one_operand)
    # arg-type: Argument 2 to "register" has incompatible type
    register("new", one_operand)


def one_operand(x: TensorSpec) -> TensorSpec:
    return x
