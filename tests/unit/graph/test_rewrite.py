"""Rewrite rules: where they apply, the nodes they leave, and that false ones are found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnc.errors import ArgumentError, ShapeError
from nnc.graph import (
    Command,
    Graph,
    GraphBuilder,
    RewriteRule,
    RuleError,
    Sample,
    TensorSpec,
    apply_rules,
    check_rule,
    command,
    rewrite_rule,
    sample,
    verify,
)
from nnc.graph.rules import Rules

add, sub, mul, neg, exp = (command(name) for name in ("add", "sub", "mul", "neg", "exp"))
full, reshape, transpose, slice_ = (command(name) for name in ("full", "reshape", "transpose", "slice"))
broadcast_to = command("broadcast_to")
MATRIX = TensorSpec((2, 3), "float32")
EVERY_DTYPE = [sample(TensorSpec((3,), name)) for name in ("int8", "bfloat16", "float64", "complex64")]


@rewrite_rule(samples=[sample(MATRIX), *EVERY_DTYPE])
def double_negation(x: Any) -> Any:
    return neg(neg(x)), x


@rewrite_rule(
    exact=False,
    samples=[sample(MATRIX, zero=0), *(sample(*case.specs, zero=0.0) for case in EVERY_DTYPE[1:])],
    when=lambda x, zero: zero == 0,
)
def add_zero(x: Any, *, zero: Any) -> Any:
    return add(x, full(shape=x.shape, dtype=x.dtype, value=zero)), x  # not exact: -0.0 + 0.0 is 0.0


@rewrite_rule(samples=[sample(TensorSpec((2, 3, 4), "float32"), p=(1, 0, 2), q=(2, 0, 1))])
def double_transpose(x: Any, *, p: tuple[int, ...], q: tuple[int, ...]) -> Any:
    return transpose(transpose(x, permutation=p), permutation=q), transpose(x, permutation=tuple(p[i] for i in q))


@rewrite_rule(samples=[sample(MATRIX, shape=(2, 3))], when=lambda x, shape: x.shape == shape)
def reshape_to_itself(x: Any, *, shape: tuple[int, ...]) -> Any:
    return reshape(x, shape=shape), x


@rewrite_rule(exact=False)
def factor_out(x: Any, y: Any, z: Any) -> Any:
    return add(mul(x, y), mul(x, z)), mul(x, add(y, z))


@rewrite_rule()
def subtract_as_sum(x: Any, y: Any) -> Any:
    return sub(x, y), add(x, neg(y))


@rewrite_rule()
def twice(x: Any) -> Any:
    return add(x, x), mul(x, full(shape=x.shape, dtype=x.dtype, value=2))


@pytest.mark.parametrize(
    "rule", [double_negation, add_zero, double_transpose, factor_out, subtract_as_sum, twice], ids=repr
)
def test_rules_that_are_true_pass_their_check(rule: RewriteRule) -> None:
    check_rule(rule)


def names(graph: Graph) -> list[str]:
    """The commands of a verified graph."""
    return [node.command.name for node in verify(graph).nodes]


def record(function: Callable[..., Any], *specs: TensorSpec) -> Graph:
    """The graph of a function of symbols."""
    b = GraphBuilder(function.__name__)
    inputs = [b.input(spec) for spec in specs]
    with b:
        outputs = function(*inputs)
    return b.build(*(outputs if isinstance(outputs, tuple) else (outputs,)))


def test_a_rule_is_applied_wherever_its_left_side_stands() -> None:
    graph = record(lambda x, y: mul(neg(neg(x)), neg(neg(y))), MATRIX, MATRIX)
    result = apply_rules(graph, [double_negation])
    assert names(result) == ["mul"]
    assert result.nodes[0].inputs == result.inputs == graph.inputs
    assert result.output_specs == graph.output_specs


def test_a_rule_whose_root_is_not_in_the_graph_is_not_run() -> None:
    runs = []

    @rewrite_rule(root=exp)
    def exponential_of_double_negation(x: Any) -> Any:
        runs.append(x)
        return exp(neg(neg(x))), exp(x)

    rules = [exponential_of_double_negation, double_negation]
    assert names(apply_rules(record(lambda x: neg(neg(neg(x))), MATRIX), rules)) == ["neg"] and runs == []
    assert names(apply_rules(record(lambda x: exp(neg(neg(x))), MATRIX), rules[:1])) == ["exp"]


def test_a_rule_is_run_when_another_rule_makes_its_root() -> None:
    square = command("square")
    product_of_itself = rewrite_rule(root=mul)(lambda x: (mul(x, x), square(x)))
    square_of_negation = rewrite_rule(root=square)(lambda x: (square(neg(x)), square(x)))
    graph = record(lambda x: mul(y := neg(x), y), MATRIX)
    after = apply_rules(graph, [square_of_negation, product_of_itself])
    assert names(after) == ["square"] and after.nodes[0].inputs == graph.inputs


def test_chains_collapse_to_a_fixpoint() -> None:
    def chain(x: Any) -> Any:
        for _ in range(1001):
            x = neg(x)
        return x

    assert names(apply_rules(record(chain, MATRIX), [double_negation])) == ["neg"]


def test_an_output_may_become_an_input() -> None:
    result = apply_rules(record(lambda x: neg(neg(x)), MATRIX), [double_negation])
    assert result.outputs == result.inputs and names(result) == []


def test_where_nothing_applies_the_graph_is_the_same_object() -> None:
    graph = record(lambda x: exp(neg(x)), MATRIX)
    assert apply_rules(graph, [double_negation, add_zero]) is graph


def test_static_parameters_are_read_off_the_site() -> None:
    graph = record(
        lambda x: transpose(transpose(x, permutation=(2, 0, 1)), permutation=(0, 2, 1)), TensorSpec((4, 5, 6), "int8")
    )
    (node,) = verify(apply_rules(graph, [double_transpose])).nodes
    assert node.params == {"permutation": (2, 1, 0)} and node.outputs[0].shape == (6, 5, 4)


def test_a_rule_is_instantiated_for_the_ranks_and_dtypes_at_the_site() -> None:
    for spec in (TensorSpec((), "int16"), TensorSpec((1,) * 33, "bfloat16"), TensorSpec((2**40, 3), "float64")):
        graph = record(lambda x: add(x, full(shape=x.shape, dtype=x.dtype, value=0)), spec)
        assert names(apply_rules(graph, [add_zero])) == []


def test_the_side_condition_is_asked_with_the_specs_and_parameters_of_the_site() -> None:
    same = record(lambda x: reshape(x, shape=(2, 3)), MATRIX)
    assert names(apply_rules(same, [reshape_to_itself])) == []
    other = record(lambda x: reshape(x, shape=(3, 2)), MATRIX)
    assert apply_rules(other, [reshape_to_itself]) is other
    one = record(lambda x: add(x, full(shape=(2, 3), dtype=x.dtype, value=1)), MATRIX)
    assert apply_rules(one, [add_zero]) is one


def test_a_left_side_with_other_parameters_does_not_match() -> None:
    @rewrite_rule()
    def first_row(x: Any) -> Any:
        row = slice_(x, start=(0, 0), limit=(1, x.shape[1]), stride=(1, 1))
        return neg(row), slice_(neg(x), start=(0, 0), limit=(1, x.shape[1]), stride=(1, 1))

    check_rule(first_row)
    for start, count in ((0, 1), (1, 0)):
        graph = record(lambda x: neg(slice_(x, start=(start, 0), limit=(start + 1, 3), stride=(1, 1))), MATRIX)  # noqa: B023
        assert (names(apply_rules(graph, [first_row])) == ["neg", "slice"]) == bool(count)


def test_a_variable_that_stands_twice_matches_only_one_symbol() -> None:
    different = record(lambda x, y, z, w: add(mul(x, y), mul(w, z)), *[MATRIX] * 4)
    assert apply_rules(different, [factor_out]) is different
    shared = record(lambda x, y, z: add(mul(x, y), mul(x, z)), *[MATRIX] * 3)
    assert names(apply_rules(shared, [factor_out])) == ["add", "mul"]
    assert names(apply_rules(record(lambda x, y: add(x, y), MATRIX, MATRIX), [twice])) == ["add"]


def test_inner_nodes_that_others_read_stay_and_those_that_only_the_left_side_read_go() -> None:
    graph = record(lambda x: (neg(neg(x)), (inner := neg(exp(x))), neg(inner)), MATRIX)
    result = apply_rules(graph, [double_negation])
    assert names(result) == ["exp", "neg"]
    assert result.outputs[0] is result.inputs[0] and result.outputs[2] is result.nodes[0].outputs[0]


def test_values_that_both_sides_share_are_not_computed_again() -> None:
    @rewrite_rule()
    def keep_exponential(x: Any) -> Any:
        inner = exp(x)
        return neg(neg(inner)), inner

    graph = record(lambda x: neg(neg(exp(x))), MATRIX)
    result = apply_rules(graph, [keep_exponential])
    assert result.nodes == graph.nodes[:1]


def test_new_nodes_keep_the_symbol_and_the_source_of_the_node_that_they_replace() -> None:
    graph = record(lambda x, y: sub(x, y), MATRIX, MATRIX)
    result = apply_rules(graph, [subtract_as_sum])
    assert names(result) == ["neg", "add"]
    assert result.outputs == graph.outputs
    assert {node.source for node in result.nodes} == {graph.nodes[0].source}


def test_a_new_node_has_the_source_of_the_replaced_one_with_its_command() -> None:
    def write(x: Any, y: Any, z: Any) -> Any:
        first = mul(x, y)
        second = mul(x, z)
        return add(first, second)

    graph = record(write, MATRIX, MATRIX, MATRIX)
    result = apply_rules(graph, [factor_out])
    assert names(result) == ["add", "mul"]
    new_sum, product = result.nodes
    assert new_sum.source == graph.nodes[2].source
    assert product.source in {node.source for node in graph.nodes[:2]}
    assert len({node.source for node in graph.nodes}) == 3


def test_constants_of_a_left_side_match_by_their_bytes_and_go_with_it() -> None:
    @rewrite_rule(samples=[sample(MATRIX)])
    def times_ones(x: Any) -> Any:
        return mul(x, np.ones(x.shape, x.dtype)), x

    @rewrite_rule(samples=[sample(MATRIX)])
    def double(x: Any) -> Any:
        return add(x, x), mul(x, np.full(x.shape, 2, x.dtype))

    check_rule(times_ones)
    check_rule(double)
    ones, twos = (record(lambda x: mul(x, np.full((2, 3), value, np.float32)), MATRIX) for value in (1, 2))  # noqa: B023
    result = apply_rules(ones, [times_ones])
    assert names(result) == [] and not result.constants
    assert apply_rules(twos, [times_ones]) is twos
    made = verify(apply_rules(record(lambda x: (add(x, x), add(x, x)), MATRIX), [double]))
    assert [value.tolist() for value in made.constants.values()] == [[[2.0] * 3] * 2] * 2


def test_the_first_rule_of_the_list_wins() -> None:
    graph = record(lambda x: add(x, x), MATRIX)

    @rewrite_rule()
    def twice_by_negation(x: Any) -> Any:
        return add(x, x), sub(x, neg(x))

    assert names(apply_rules(graph, [twice, twice_by_negation])) == ["full", "mul"]
    assert names(apply_rules(graph, [twice_by_negation, twice])) == ["neg", "sub"]


@pytest.mark.parametrize("between", [1, 2, 3])
def test_a_change_far_above_a_node_lets_its_rule_apply_later(between: int) -> None:
    """The second rule replaces the result of the first one, and the third finds its left side below that."""
    tanh, sin, cos = map(command, ("tanh", "sin", "cos"))

    def above(x: Any) -> Any:
        for _ in range(between):
            x = exp(x)
        return x

    @rewrite_rule()
    def first(x: Any) -> Any:
        return tanh(x), sin(x)

    @rewrite_rule()
    def second(x: Any) -> Any:
        return sin(x), cos(x)

    @rewrite_rule()
    def third(x: Any) -> Any:
        return above(cos(x)), x

    graph = record(lambda x: neg(above(tanh(x))), MATRIX)
    assert names(apply_rules(graph, [first, second, third])) == ["neg"]
    assert names(apply_rules(graph, [first, second])) == ["cos", *["exp"] * between, "neg"]


def test_only_exact_rules_are_used_where_that_is_asked() -> None:
    graph = record(lambda x: neg(neg(add(x, full(shape=(2, 3), dtype=x.dtype, value=0)))), MATRIX)
    assert names(apply_rules(graph, [add_zero, double_negation], exact=True)) == ["full", "add"]
    assert names(apply_rules(graph, [add_zero, double_negation])) == []


def test_a_rule_for_sole_readers_leaves_values_with_other_readers() -> None:
    tanh, cos = map(command, ("tanh", "cos"))

    @rewrite_rule(sole=True)
    def negated_exp(x: Any) -> Any:
        return neg(exp(x)), tanh(x)

    assert names(apply_rules(record(lambda x: neg(exp(x)), MATRIX), [negated_exp])) == ["tanh"]

    def twice(x: Any) -> Any:
        y = exp(x)
        return neg(y), cos(y)

    def given(x: Any) -> Any:
        y = exp(x)
        return neg(y), y

    assert names(apply_rules(record(twice, MATRIX), [negated_exp])) == ["exp", "neg", "cos"]
    assert names(apply_rules(record(given, MATRIX), [negated_exp])) == ["exp", "neg"]


def test_rules_reach_into_sub_graphs_and_shared_ones_stay_shared(call: Command) -> None:
    inner = record(lambda x: exp(neg(neg(x))), MATRIX)
    b = GraphBuilder()
    x = b.input(MATRIX)
    (once,) = b.add(call, x, graphs=(inner,))
    (twice,) = b.add(call, once, graphs=(inner,))
    result = verify(apply_rules(b.build(twice), [double_negation]))
    first, second = result.nodes
    assert names(first.graphs[0]) == ["exp"] and first.graphs[0] is second.graphs[0]
    assert names(inner) == ["neg", "neg", "exp"]


def test_commands_with_sub_graphs_stand_in_rules(call: Command) -> None:
    def identity() -> Graph:
        b = GraphBuilder()
        return b.build(b.input(MATRIX))

    @rewrite_rule()
    def call_identity(x: Any) -> Any:
        return call(x, graphs=(identity(),)), x

    b = GraphBuilder()
    x = b.input(MATRIX)
    (a,) = b.add(call, x, graphs=(identity(),))
    (c,) = b.add(call, a, graphs=(record(lambda x: exp(x), MATRIX),))
    result = apply_rules(b.build(c), [call_identity])
    assert names(result) == ["test_call"] and result.nodes[0].inputs == (x,)


def test_commands_with_several_outputs_can_be_replaced(new_command: Callable[..., Command]) -> None:
    both = new_command("test_both", Rules(infer=lambda x: (x, x), reference=lambda x: (-x, x)), outputs=2)

    @rewrite_rule(samples=[sample(MATRIX)])
    def split(x: Any) -> Any:
        return both(x), (neg(x), x)

    check_rule(split)
    graph = record(lambda x: both(exp(x)), MATRIX)
    result = apply_rules(graph, [split])
    assert names(result) == ["exp", "neg"]
    assert result.outputs == (graph.outputs[0], result.nodes[0].outputs[0])


def test_nodes_for_several_outputs_may_be_replaced_in_turn(new_command: Callable[..., Command]) -> None:
    both = new_command("test_both_alike", Rules(infer=lambda x: (x, x), reference=lambda x: (x, x)), outputs=2)

    @rewrite_rule(samples=[sample(MATRIX)])
    def alike(x: Any) -> Any:
        copy = command("copy")(x)
        return both(x), (copy, copy)

    @rewrite_rule()
    def without_copy(x: Any) -> Any:
        return command("copy")(x), x

    graph = record(lambda x: (*both(x), neg(both(x)[1])), MATRIX)
    result = verify(apply_rules(graph, [alike, without_copy]))
    assert names(result) == ["neg"] and result.outputs[:2] == (*result.inputs, *result.inputs)
    assert result.nodes[0].inputs == result.inputs


def test_rules_with_several_forms_of_the_left_side_find_each() -> None:
    @rewrite_rule(samples=[sample(MATRIX), sample(TensorSpec((2,), "float32"))])
    def by_rank(x: Any) -> Any:
        return (
            (neg(exp(x)), sub(full(shape=x.shape, dtype=x.dtype, value=0), exp(x)))
            if len(x.shape) == 2
            else (neg(neg(x)), x)
        )

    matrix, vector = (record(lambda x: neg(neg(neg(exp(x)))), TensorSpec(shape, "float32")) for shape in ((2, 3), (2,)))
    assert names(apply_rules(vector, [by_rank])) == ["exp", "neg"]
    assert names(apply_rules(matrix, [by_rank])) == ["full", "exp", "sub", "neg", "neg"]


def test_a_sample_that_shows_no_form_only_serves_to_check() -> None:
    vector = TensorSpec((3,), "float32")

    def by_rank(x: Any) -> Any:
        return (neg(neg(x)) if len(x.shape) == 2 else neg(neg(neg(neg(x))))), x

    for shows_form in (True, False):
        rule = rewrite_rule(samples=[sample(MATRIX), Sample((vector,), form=shows_form)])(by_rank)
        assert len(rule.patterns) == 1 + shows_form
        graph = record(lambda x: neg(neg(neg(neg(x)))), vector)
        assert (apply_rules(graph, [rule]) is graph) != shows_form
        if shows_form:
            check_rule(rule)
        else:
            with pytest.raises(RuleError, match="it does not find its own left side"):
                check_rule(rule)


def test_a_number_is_part_of_a_form_and_the_same_for_all_dtypes() -> None:
    @rewrite_rule(exact=False, samples=[sample(MATRIX)])
    def times_one(x: Any) -> Any:
        return mul(x, broadcast_to(np.asarray(1, x.dtype), shape=x.shape)), x

    for dtype, value, count in (("int8", 1, 0), ("float64", 1.0, 0), ("float64", 2.0, 2), ("complex64", np.nan, 2)):
        spec = TensorSpec((4,), dtype)
        graph = record(lambda x: mul(x, broadcast_to(np.asarray(value, x.dtype), shape=x.shape)), spec)  # noqa: B023
        assert len(names(apply_rules(graph, [times_one]))) == count


def test_numbers_may_vary_with_the_specs_if_samples_show_it() -> None:
    def times_rows(x: Any) -> Any:
        n, less = (broadcast_to(np.asarray(x.shape[0] - i, x.dtype), shape=x.shape) for i in (0, 1))
        return mul(x, n), add(mul(x, less), x)

    pair, triple, seven = (TensorSpec((n, 2), "float32") for n in (2, 3, 7))
    wrong(times_rows, "it does not find its own", exact=False, samples=[sample(pair), Sample((triple,), form=False)])
    rule = rewrite_rule(exact=False, samples=[sample(pair), sample(triple)])(times_rows)
    check_rule(rule, [sample(seven)])
    for value, count in ((7, 3), (6, 2)):
        graph = record(lambda x: mul(x, broadcast_to(np.asarray(value, x.dtype), shape=x.shape)), seven)  # noqa: B023
        assert len(names(apply_rules(graph, [rule]))) == count


def test_a_rule_that_a_command_refuses_says_where_it_is_written() -> None:
    @rewrite_rule()
    def wrong_shape(x: Any) -> Any:
        return neg(reshape(x, shape=(5,))), x

    with pytest.raises(ShapeError, match=r"test_rewrite.py:\d+ in wrong_shape"):
        check_rule(wrong_shape)


def test_rules_that_run_in_a_circle_are_stopped() -> None:
    @rewrite_rule()
    def swap(x: Any, y: Any) -> Any:
        return add(x, y), add(y, x)

    with pytest.raises(RuleError, match="rule swap: it still applies after 288 rewrites"):
        apply_rules(record(lambda x, y: add(x, y), MATRIX, MATRIX), [swap])


def test_a_node_that_reads_seventy_thousand_others_is_rewritten(gather_all: Command) -> None:
    b = GraphBuilder()
    x = b.input((), "float32")
    graph = b.build(b.add(gather_all, *[b.add("exp", x) for _ in range(70_000)], b.add("neg", b.add("neg", x))))
    result = apply_rules(graph, [double_negation])
    assert result.nodes[-1].inputs[-1] is x and len(result.nodes) == 70_001


def wrong(function: Callable[..., Any], problem: str, **options: Any) -> None:
    """Expects the check of a rule to fail."""
    with pytest.raises(RuleError, match=problem):
        check_rule(rewrite_rule(**options)(function))


def test_false_rules_are_found_out() -> None:
    wrong(lambda x: (neg(x), x), "the sides differ")
    wrong(lambda x: (add(x, full(shape=x.shape, dtype=x.dtype, value=0.0)), x), "the sides differ")  # -0.0 + 0.0 is 0.0
    wrong(lambda x: (sub(x, x), full(shape=x.shape, dtype=x.dtype, value=0)), "the sides differ")  # infinity, NaN
    wrong(lambda x, y, z: (add(add(x, y), z), add(x, add(y, z))), "the sides differ")  # rounding
    check_rule(rewrite_rule(exact=False)(lambda x, y, z: (add(add(x, y), z), add(x, add(y, z)))))


def test_functions_that_are_no_equations_are_refused() -> None:
    wrong(lambda x: neg(x), "it does not return two sides")
    wrong(lambda x: (x, neg(x)), "the left side is not all that one command yields")
    wrong(lambda x: (neg(x), neg(neg(x))), "the sides differ.")
    wrong(lambda x: (y := neg(x), neg(neg(y))), "the right side reads the left side")
    wrong(lambda x: (exp(x), reshape(exp(x), shape=(6,))), r"the sides differ in spec: float32\[2,3\] = float32\[6\]")
    wrong(lambda x: (exp(neg(neg(x))), exp(x)), "the left side ends in exp, not in neg", root=neg)
    wrong(lambda x, y: (neg(x), neg(x)), "it does not find its own left side")
    wrong(
        lambda x, *, n: (reshape(x, shape=(n + 1, n)), reshape(x, shape=(3, 2))),
        "static parameter 'n' is not a parameter of a node of the left side",
        samples=[sample(MATRIX, n=2)],
    )


def test_a_static_parameter_is_found_by_its_name_or_by_a_value_that_no_other_parameter_has() -> None:
    def sliced_twice(x: Any, *, first: Any, limit: Any, second: Any, stride: Any) -> Any:
        left = slice_(slice_(x, start=first, limit=limit, stride=stride), start=second, limit=(4,), stride=stride)
        start = (first[0] + second[0],)
        return left, slice_(x, start=start, limit=(first[0] + 4,), stride=stride)

    def samples(first: int, second: int) -> Any:
        return [sample(TensorSpec((9,), "float32"), first=(first,), limit=(9,), second=(second,), stride=(1,))]

    wrong(sliced_twice, "static parameter 'first' may be any of several parameters", samples=samples(2, 2))
    for first, second in ((2, 3), (3, 2)):
        rule = rewrite_rule(samples=samples(first, second))(sliced_twice)
        check_rule(rule)
        (pattern,) = rule.patterns
        assert pattern.statics["first"] == (1, "start") and pattern.statics["second"] == (0, "start")


def test_static_parameters_need_samples_and_samples_must_fulfil_the_condition() -> None:
    with pytest.raises(ArgumentError, match="it has static parameters, but no samples of them"):
        rewrite_rule()(lambda x, *, shape: (reshape(x, shape=shape), x))
    with pytest.raises(ArgumentError, match="a sample does not fulfil the rule's condition"):
        check_rule(reshape_to_itself, [sample(MATRIX, shape=(3, 2))])
    check_rule(reshape_to_itself)
