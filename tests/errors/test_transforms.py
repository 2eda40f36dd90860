"""Mistakes with grad, vmap, jvp, vjp and the custom rules."""

from __future__ import annotations

from typing import Any

import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, AxisError, DTypeError, ShapeError, TreeError, UnsupportedError
from tests.errors.reports import reports


def square(x: Any) -> Any:
    return x * x


# -- grad --------------------------------------------------------------------------------------------------------------


def test_the_gradient_of_a_function_that_returns_a_vector() -> None:
    with reports(ShapeError, "nnc.grad", "square", "float32[3]", "nnp.mean"):
        nnc.grad(square)(nnp.ones(3))


def test_the_gradient_of_a_function_that_returns_a_dict() -> None:
    with reports(ShapeError, "nnc.grad", "a dict", "has_aux=True"):
        nnc.grad(lambda x: {"loss": x * x, "x": x})(1.0)


def test_the_gradient_of_a_function_that_returns_nothing() -> None:
    with reports(ShapeError, "nnc.grad", "None"):
        nnc.grad(lambda x: None)(1.0)


def test_the_gradient_with_respect_to_an_integer() -> None:
    with reports(DTypeError, "nnc.grad", "int64", "1.0 instead of 1"):
        nnc.grad(square)(3)


def test_the_gradient_of_a_function_that_returns_an_integer() -> None:
    with reports(DTypeError, "nnc.grad", "int64[]"):
        nnc.grad(lambda x: nnp.argmax(x))(nnp.ones(3))


def test_the_gradient_with_respect_to_an_argument_that_was_not_passed() -> None:
    def loss(w: Any, x: Any = 1.0) -> Any:
        return w * x

    with reports(ArgumentError, "nnc.grad", "argument 1", "loss(w", "argnames"):
        nnc.grad(loss, argnums=1)(2.0)


def test_the_gradient_with_respect_to_a_keyword_that_was_not_passed() -> None:
    with reports(ArgumentError, "nnc.grad", "'scale'"):
        nnc.grad(lambda x, scale=1.0: x * scale, argnames="scale")(2.0)


def test_argnums_that_are_names() -> None:
    with reports(ArgumentTypeError, "nnc.grad", "('x',)", "argnames"):
        nnc.grad(square, argnums=("x",))


def test_argnums_that_are_missing() -> None:
    with reports(ArgumentTypeError, "nnc.grad", "argnums", "None"):
        nnc.grad(square, argnums=None)  # type: ignore[arg-type]


def test_has_aux_without_a_pair() -> None:
    with reports(ArgumentTypeError, "nnc.value_and_grad", "has_aux=True", "pair"):
        nnc.value_and_grad(square, has_aux=True)(2.0)


def test_grad_of_the_result_instead_of_the_function() -> None:
    with reports(ArgumentTypeError, "nnc.grad", "must be a function", "nnc.grad(f)(x)"):
        nnc.grad(square(2.0))


def test_a_complex_result_without_holomorphic() -> None:
    with reports(DTypeError, "nnc.grad", "complex64[]", "nnp.abs"):
        nnc.grad(lambda x: x * 1j)(2.0)


def test_an_unknown_keyword_of_a_transform_in_pytorch_spelling() -> None:
    with reports(ArgumentTypeError, "vmap", "in_dims", "in_axes"):
        nnc.vmap(square, in_dims=0)


# -- vmap --------------------------------------------------------------------------------------------------------------


def test_mapped_axes_of_different_sizes() -> None:
    with reports(ShapeError, "nnc.vmap", "3", "4"):
        nnc.vmap(lambda x, y: x + y)(nnp.ones(3), nnp.ones(4))


def test_more_in_axes_than_arguments() -> None:
    with reports(ArgumentError, "nnc.vmap", "2 entries", "1 positional", "(0, 0)"):
        nnc.vmap(square, in_axes=(0, 0))(nnp.ones(3))


def test_mapping_over_a_number() -> None:
    with reports(ShapeError, "nnc.vmap", "0-d", "float32[]", "None"):
        nnc.vmap(lambda x, y: x * y)(nnp.ones(3), 2.0)


def test_mapping_over_an_axis_that_does_not_exist() -> None:
    with reports(AxisError, "nnc.vmap", "axis 2"):
        nnc.vmap(square, in_axes=2)(nnp.ones((3, 4)))


def test_mapping_over_nothing() -> None:
    with reports(ArgumentError, "nnc.vmap", "axis_size"):
        nnc.vmap(square, in_axes=None)(nnp.ones(3))


def test_an_axis_that_is_no_number() -> None:
    with reports(ArgumentTypeError, "nnc.vmap", "'batch'"):
        nnc.vmap(square, in_axes="batch")(nnp.ones(3))


def test_an_out_axis_that_is_no_number() -> None:
    with reports(ArgumentTypeError, "nnc.vmap", "out_axes", "'batch'"):
        nnc.vmap(square, out_axes="batch")(nnp.ones(3))


def test_a_chunk_of_no_rows() -> None:
    with reports(ArgumentError, "nnc.vmap", "chunk_size", "0"):
        nnc.vmap(square, chunk_size=0)


def test_in_axes_that_do_not_fit_the_tree() -> None:
    with reports(TreeError, "nnc.vmap", "in_axes"):
        nnc.vmap(lambda p: p["w"], in_axes=({"b": 0},))({"w": nnp.ones(3)})


# -- jvp, vjp, linear maps ---------------------------------------------------------------------------------------------


def test_tangents_of_another_structure() -> None:
    with reports(TreeError, "nnc.jvp", '["b"]', "float32[2]"):
        nnc.jvp(lambda p: p["w"], ({"w": nnp.ones(2)},), ({"b": nnp.ones(2)},))


def test_tangents_of_another_shape() -> None:
    with reports(ShapeError, "nnc.jvp", "float32[2]", "float32[3]"):
        nnc.jvp(square, (nnp.ones(2),), (nnp.ones(3),))


def test_tangents_of_another_dtype() -> None:
    with reports(DTypeError, "nnc.jvp", "float32[2]", "float64[2]"):
        nnc.jvp(square, (nnp.ones(2),), (nnp.ones(2, dtype="float64"),))


def test_primals_that_are_not_in_a_tuple() -> None:
    with reports(ArgumentTypeError, "nnc.jvp", "tuple", "nnc.jvp(f, (x,), (t,))"):
        nnc.jvp(square, nnp.ones(2), nnp.ones(2))


def test_a_cotangent_of_another_shape() -> None:
    _, pull = nnc.vjp(square, nnp.ones(2))
    with reports(ShapeError, "vjp_fn", "float32[5]", "float32[2]"):
        pull(nnp.ones(5))


def test_a_cotangent_of_another_structure() -> None:
    _, pull = nnc.vjp(lambda x: (x, x * x), nnp.ones(2))
    with reports(TreeError, "vjp_fn", "cotangent"):
        pull(nnp.ones(2))


def test_transposing_a_function_that_is_not_linear() -> None:
    with reports(UnsupportedError, "linear", at="nnp.sin(x)"):
        transposed = nnc.linear_transpose(lambda x: nnp.sin(x), nnp.ones(2))
        transposed(nnp.ones(2))


def test_transposing_a_product() -> None:
    with reports(UnsupportedError, "mul", "2 operands", "float32[2]", at="lambda x: x * x"):
        product = nnc.linear_transpose(lambda x: x * x, nnp.ones(2))
        product(nnp.ones(2))


def test_transposing_a_decision_on_a_linear_value() -> None:
    with reports(UnsupportedError, "not linear", "bool[2]", at="nnp.where(x > 0, x, 0)"):
        positive = nnc.linear_transpose(lambda x: nnp.where(x > 0, x, 0), nnp.ones(2))
        positive(nnp.ones(2))


def test_a_cotangent_that_is_no_array() -> None:
    _, pull = nnc.vjp(square, nnp.ones(2))
    with reports(ArgumentTypeError, "vjp_fn", "'one'"):
        pull("one")


def test_the_jacobian_with_respect_to_integers() -> None:
    with reports(DTypeError, "nnc.jacrev", "int64"):
        nnc.jacrev(square)(nnp.asarray([1, 2]))


# -- custom rules ------------------------------------------------------------------------------------------------------


def test_a_backward_rule_with_too_few_cotangents() -> None:
    product = nnc.custom_vjp(lambda x, y: x * y)
    product.defvjp(lambda x, y: (x * y, (x, y)), lambda kept, ct: (ct * kept[1],))
    with reports(ArgumentTypeError, "bwd rule", "2 cotangents", "1 values"):
        nnc.grad(lambda x: product(x, 3.0))(2.0)


def test_a_backward_rule_with_a_cotangent_of_another_shape() -> None:
    total = nnc.custom_vjp(lambda x: nnp.sum(x))
    total.defvjp(lambda x: (nnp.sum(x), None), lambda kept, ct: (ct,))
    with reports(ShapeError, "bwd rule", "float32[3]", "float32[]"):
        nnc.grad(total)(nnp.ones(3))


def test_a_forward_rule_that_is_not_linear_in_the_tangent() -> None:
    @nnc.custom_jvp
    def twice(x: Any) -> Any:
        return 2 * x

    @twice.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return 2 * primals[0], tangents[0] * tangents[0]

    with reports(UnsupportedError, "not linear", "custom_jvp", at="tangents[0] * tangents[0]"):
        nnc.grad(twice)(1.0)


def test_a_custom_function_without_its_rule() -> None:
    unfinished = nnc.custom_vjp(square)
    with reports(UnsupportedError, "square", "defvjp"):
        nnc.grad(unfinished)(2.0)


# -- trees -------------------------------------------------------------------------------------------------------------


def test_mapping_over_trees_that_differ_lists_every_path() -> None:
    left, right = {"w": 1.0, "layers": [1.0, 2.0]}, {"b": 1.0, "layers": [1.0]}
    with reports(TreeError, "tree.map", '["w"]', '["b"]', '["layers"][1]'):
        nnc.tree.map(lambda x, y: x + y, left, right)


# -- branches ----------------------------------------------------------------------------------------------------------


def test_a_bypass_of_another_shape_than_the_branches_results() -> None:
    words = ("nnc.case_of", "float32[3] from square", "float32[] from bypass", "branch 0 at")
    with reports(ShapeError, *words):
        nnc.case_of(7, [square], nnp.ones(3), bypass=nnp.ones(()))


def test_a_scan_of_a_negative_number_of_rounds() -> None:
    with reports(ArgumentError, "nnc.scan: length is -1", "integer of 0 or more"):
        nnc.scan(lambda carry, x: (carry, x), 0.0, None, length=-1)


@pytest.mark.parametrize(
    ("kind", "result", "fn"),
    [
        (ShapeError, "float32[]", lambda a, b: nnp.sum(a + b)),
        (DTypeError, "int32[2]", lambda a, b: nnp.int32(a + b)),
    ],
)
def test_an_associative_scan_whose_function_changes_shape_or_dtype(kind: Any, result: str, fn: Any) -> None:
    with reports(kind, "must keep shape and dtype", "argument float32[2]", f"result {result}"):
        nnc.associative_scan(fn, nnp.ones(4))


def test_a_scan_whose_function_returns_three_values() -> None:
    with reports(ArgumentTypeError, "a tuple of 3"):
        nnc.scan(lambda c, x: (c, x, x), 0.0, nnp.ones(3))


def test_hvp_with_arguments_that_are_no_tuples_names_hvp() -> None:
    x = nnp.ones(3)
    for primals, tangents in ((x, x), (1.0, 2.0), ((x,), x)):
        with reports(ArgumentTypeError, "nnc.hvp: primals and tangents must be tuples", "nnc.hvp(f, (x,), (t,))"):
            nnc.hvp(lambda x: x.sum(), primals, tangents)  # type: ignore[call-overload]
    with reports(ShapeError, "nnc.hvp: tangents"):
        nnc.hvp(lambda x: x.sum(), (x,), (nnp.ones(4),))


def test_arrays_where_functions_belong() -> None:
    x = nnp.ones(3)
    with reports(ArgumentTypeError, "each branch must be a function", "nnc.cond(pred, true_fun, false_fun, *operands)"):
        nnc.cond(True, x, x)  # type: ignore[call-overload]
    with reports(ArgumentTypeError, "must be a function, it is 0.0", "nnc.scan(f, init, xs)"):
        nnc.scan(0.0, lambda c, x: (c, x), x)  # type: ignore[call-overload]
    with reports(ArgumentTypeError, "nnc.grad(f)(x)"):
        nnc.grad(lambda x: x.sum(), x)  # type: ignore[call-overload]
    with reports(ArgumentTypeError, "nnc.value_and_grad(f)(x)"):
        nnc.value_and_grad(lambda x: x, 2.0)  # type: ignore[call-overload]


def test_argnames_that_name_no_parameter() -> None:
    with reports(ArgumentError, "'z'", "name one of its parameters: x, y"):
        nnc.grad(lambda x, y: x + y, argnames="z")(1.0, 2.0)
    with reports(ArgumentError, "'y'", "call with y=..."):
        nnc.grad(lambda x, y: x + y, argnames="y")(1.0, 2.0)
    with reports(ArgumentError, "'z'", "call with z=..."):
        nnc.grad(lambda **named: named["z"], argnames="z")()


def test_a_loss_of_integers_is_not_told_of_complex_numbers() -> None:
    with reports(DTypeError, "int64[]", "integers and truth values have no derivative"):
        nnc.grad(lambda x: nnp.argmax(x))(nnp.ones(3))
    with reports(DTypeError, "complex64[]", "nnp.real(...)"):
        nnc.grad(lambda x: x + 0j)(1.0)


def test_a_cotangent_of_another_shape_among_several() -> None:
    @nnc.custom_vjp
    def product(x: Any, y: Any) -> Any:
        return x.sum() * y.sum()

    product.defvjp(lambda x, y: (product(x, y), None), lambda _, ct: (nnp.ones(3), nnp.ones(4)))
    with reports(ShapeError, "cotangent 1 float32[4]", "argument 1 float32[3]"):
        nnc.grad(product)(nnp.ones(3), nnp.ones(3))


def test_in_axes_of_another_structure_are_shown_as_they_were_given() -> None:
    with reports(TreeError, "the prefix ({'v': 0}, 0) does not fit the tree", "expected key(s): ['v']"):
        nnc.vmap(lambda a, b: b, in_axes=({"v": 0}, 0))({"w": nnp.ones(3)}, nnp.ones(3))
