"""Loops for users: they trace their functions once, as a sub-graph of one node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc import tree
from nnc.array.array import Array, as_value
from nnc.array.promote import as_operand, astype, is_weak, with_weakness
from nnc.base import dtypes
from nnc.base.context import activity
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import convert
from nnc.commands.index import move_axis
from nnc.commands.loop import ITERATION, while_
from nnc.commands.replay import check_strategy
from nnc.commands.rules import check_axis
from nnc.commands.shape import concatenate, flip, reshape, slice_, slice_axis
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TraceError, TreeError, user_error
from nnc.graph import bind, spec_of
from nnc.graph.rules import Value
from nnc.trace.core.axes import NOWHERE, varying_over
from nnc.trace.core.flat import FlatTree, call_function, check_callable, name_of
from nnc.trace.core.named import refuse_joins
from nnc.trace.core.specs import argument_spec
from nnc.trace.core.staging import stage
from nnc.trace.core.vectorize import vmap
from nnc.trace.loops.blocks import Blocks
from nnc.trace.loops.carry import Carry, keeps, takes
from nnc.trace.loops.iterations import nodes_so_far
from nnc.typing import C, Leaf, R, X, Y

__all__ = ["associative_scan", "fori_loop", "map", "scan", "while_loop"]

Fun = Callable[..., Any]


def _call(fun: Fun, where: str, form: str, *args: Any) -> Any:
    """Returns the result of a user's function that a loop calls as `form` says."""
    return call_function(fun, args, where=where, fix=f"define it as {form}.")


# -- while and fori ----------------------------------------------------------------------------------------------------


@spelled
def while_loop(
    cond_fun: Callable[[C], Leaf],
    body_fun: Callable[[Any], C],
    init_val: object,
    *,
    max_steps: int | None = None,
    checkpoint: str | int | None = None,
) -> C:
    """Repeats `body_fun` while `cond_fun` holds. Differentiable in both modes, for any number of iterations.

    Args:
        cond_fun: carry -> bool scalar.
        body_fun: carry -> carry of the same structure, shapes and dtypes.
        init_val: the carry at first, a pytree.
        max_steps: the most iterations there may be; memory for the reverse pass is then taken at once.
        checkpoint: the residuals that are kept for the reverse pass. None: those of every iteration. "sqrt": about the
            square root of the number of iterations of carries, "binomial": about its logarithm, an int: at most so many;
            iterations are run again from those.

    Returns:
        the carry for which `cond_fun` is false.

    Raises:
        TreeError, ShapeError: `body_fun` changes the carry's structure, shapes or dtypes.
        ArgumentError: the condition still holds after `max_steps` iterations.
        DTypeError: `cond_fun` returns no bool.

    Example:
        >>> newton = lambda a: nnc.while_loop(lambda x: abs(x * x - a) > 1e-6, lambda x: (x + a / x) / 2, a)
        >>> newton(9.0), nnc.grad(newton)(9.0)
        (Array(3., dtype=float32), Array(0.1666..., dtype=float32))
    """
    for fun, name in ((cond_fun, "cond_fun"), (body_fun, "body_fun")):
        check_callable(fun, f"nnc.while_loop: {name}")
    if max_steps is not None and (not isinstance(max_steps, int) or isinstance(max_steps, bool) or max_steps < 0):
        raise user_error(
            ArgumentError, "nnc.while_loop", f"max_steps is {max_steps!r}.", fix="give a number of iterations, or None."
        )
    check_strategy("nnc.while_loop", checkpoint)
    carry, entry = Carry("nnc.while_loop", init_val), NOWHERE
    while True:
        box: list[Any] = []

        def body(_: Any, *values: Any, box: list[Any] = box) -> list[Any]:
            holds = _call(cond_fun, "nnc.while_loop", "cond_fun(carry)", carry.tree.build(values))
            condition = _condition("nnc.while_loop", holds)
            box.append(nodes_so_far())
            result = _call(body_fun, "nnc.while_loop", "body_fun(carry)", carry.tree.build(values))
            following, changed = carry.accept(result, body_fun)
            varies = varying_over(condition) or NOWHERE
            if varies:  # places leave the loop after different numbers of iterations
                carry.spread([varies] * len(carry.leaves))
            box.extend((changed, varies))
            return [condition, *following]

        with activity(f"tracing {name_of(body_fun)} for while_loop"):
            axes = None if carry.axes is None else [entry, *carry.axes]
            staged = stage(
                body,
                [ITERATION, *carry.specs],
                weak=[False, *carry.weak],
                name=name_of(body_fun),
                axes=axes,
                entry=entry,
            )
        if not box[1] and carry.is_settled and box[2] == entry:
            break
        carry.take(box[1])
        carry.is_settled, entry = True, box[2]
    refuse_joins("nnc.while_loop", "the test", [staged.graph], entry)
    n = len(carry.leaves)
    params = {"carries": n, "before": box[0], "max_steps": max_steps, "checkpoint": checkpoint}
    results = bind(while_, [*carry.values, *staged.captured], params, (staged.graph,))
    return carry.build(results[:n])


def _condition(where: str, value: Any) -> Value:
    leaves = FlatTree(value)
    if len(leaves.leaves) != 1 or not leaves.where or not tree.structure(value).is_leaf():
        fix = "return a single comparison, or combine with &."
        raise user_error(TreeError, where, f"the condition must be one bool, it is {value!r}.", fix=fix)
    x = as_value(value)
    if x.spec.shape != () or not dtypes.is_bool(x.spec.dtype):
        problem = "the condition must be a bool scalar."
        fix = "compare a scalar, or reduce with .any() or .all()."
        raise user_error(ShapeError, where, problem, operands={"condition": x.spec}, fix=fix)
    return x


@spelled
def fori_loop(
    lower: Leaf, upper: Leaf, body_fun: Callable[[Array, Any], C], init_val: object, *, unroll: int | None = None
) -> C:
    """Repeats `body_fun(i, carry)` for i from `lower` up to but without `upper`.

    Where both bounds are Python ints, the number of iterations is static and the reverse pass takes its memory at once; else it is
    a `while_loop`.

    Args:
        lower: first i, an int or an integer scalar.
        upper: end of i, which is left out; an int or an integer scalar.
        body_fun: (i, carry) -> carry.
        init_val: the carry at first.
        unroll: iterations traced together, True for all; both bounds must then be Python ints.

    Returns:
        the carry after the last iteration; `init_val` where there is none.

    Raises:
        ArgumentTypeError: a bound is no integer.
        ArgumentError: `unroll` is not positive, or given for bounds that are not known.
        TreeError, ShapeError: the carry changes.

    Example:
        >>> nnc.fori_loop(0, 5, lambda i, x: x * 2 + i, 1.0)
        Array(58., dtype=float32)
    """
    check_callable(body_fun, "nnc.fori_loop: body_fun")
    for name, bound in (("lower", lower), ("upper", upper)):
        spec = argument_spec(as_operand(bound, "nnc.fori_loop", name))
        if spec.shape != () or not dtypes.is_integer(spec.dtype):
            problem = f"{name} must be an integer."
            fix = "give an int, or convert with .astype(int)."
            raise user_error(ArgumentTypeError, "nnc.fori_loop", problem, operands={name: spec}, fix=fix)
    if isinstance(lower, (int, np.integer)) and isinstance(upper, (int, np.integer)):
        return _counted(int(lower), int(upper), body_fun, init_val, unroll)
    if unroll is not None:
        problem = f"unroll is {unroll!r}, but the number of iterations is not known."
        fix = "give both bounds as Python ints, or leave out unroll."
        raise user_error(ArgumentError, "nnc.fori_loop", problem, fix=fix)
    first, last = as_value(lower), as_value(upper)
    first, last = (convert(x, dtype=dtypes.int64) if x.spec.dtype != dtypes.int64 else x for x in (first, last))

    def count(c: Any) -> Any:
        return c[0] + 1, _call(body_fun, "nnc.fori_loop", "body_fun(i, carry)", c[0], c[1])

    return while_loop(lambda c: c[0] < last, count, (first, init_val))[1]


def _counted(lower: int, upper: int, body_fun: Fun, init_val: Any, unroll: int | None) -> Any:
    """Returns a `fori_loop` of known length, which is a scan."""
    count = max(0, upper - lower)

    def step(carry: Any, i: Any) -> Any:
        return _call(body_fun, "nnc.fori_loop", "body_fun(i, carry)", i + lower, carry), None

    block = _block_of("nnc.fori_loop", unroll, count)
    return _scan("nnc.fori_loop", step, init_val, _Index, count, False, body_fun, block=block)


# -- scan, map ---------------------------------------------------------------------------------------------------------


class _Index:
    """In place of sequences: the iteration's number is the element."""


@spelled
def scan(
    f: Callable[[Any, Any], tuple[C, Y]],
    init: object,
    xs: object = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    *,
    checkpoint: str | int | None = None,
) -> tuple[C, Y]:
    """Carries a value along sequences: `carry, y = f(carry, x)` for each row x of `xs`, and stacks the ys.

    Args:
        f: (carry, x) -> (carry, y), all pytrees.
        init: the carry at first.
        xs: sequences with one leading length, or None.
        length: number of iterations, where xs is None.
        reverse: whether to go from the last row to the first; ys keep their places.
        unroll: iterations traced together, True for all.
        checkpoint: the residuals that are kept for the reverse pass, as in `while_loop`.

    Returns:
        (the last carry, ys stacked along a leading axis).

    Raises:
        TreeError, ShapeError: the carry changes; lengths differ.
        ArgumentError: no length is known.

    Example:
        >>> nnc.scan(lambda c, x: (c + x, c * x), 0.0, nnp.asarray([1.0, 2.0, 3.0]))
        (Array(6., dtype=float32), Array([0., 2., 9.], dtype=float32))
    """
    check_callable(f, "nnc.scan")
    count = _length("nnc.scan", xs, length)
    block = _block_of("nnc.scan", unroll, count)
    check_strategy("nnc.scan", checkpoint)
    return _scan("nnc.scan", f, init, xs, count, reverse, f, checkpoint, block)


def _block_of(where: str, unroll: Any, count: int) -> int:
    """Returns the number of iterations that are traced together; True stands for all, False and None for one."""
    if unroll is None or isinstance(unroll, bool):
        return max(1, count) if unroll else 1
    if not isinstance(unroll, (int, np.integer)) or unroll < 1:
        raise user_error(
            ArgumentError, where, f"unroll is {unroll!r}.", fix="give a positive number of iterations, or True for all."
        )
    return int(unroll)


def _length(where: str, xs: Any, length: int | None) -> int:
    sizes: dict[str, Any] = {}
    sequences = FlatTree(xs)
    for path, leaf in zip(sequences.paths(), sequences.dynamic, strict=True):
        shape = np.shape(leaf)
        if not shape:
            problem = f"xs{path} is 0-d, so it has no rows."
            fix = "give sequences with a leading axis; capture other values in f."
            raise user_error(ShapeError, where, problem, operands={f"xs{path}": as_value(leaf).spec}, fix=fix)
        sizes[f"xs{path}"] = shape[0]
    if length is not None:
        sizes["length"] = _checked_length(where, length)
    if not sizes:
        raise user_error(
            ArgumentError, where, "neither xs nor length says how many iterations there are.", fix="pass length=n."
        )
    if len(set(sizes.values())) > 1:
        raise user_error(ShapeError, where, "lengths differ.", operands=sizes, fix="give sequences of one length.")
    return int(next(iter(sizes.values())))


def _checked_length(where: str, length: Any) -> int:
    try:
        count = operator.index(length)
    except TraceError:
        raise
    except TypeError:
        count = -1
    if count < 0:
        fix = "give the number of iterations."
        raise user_error(ArgumentError, where, f"length is {length!r}; it must be an integer of 0 or more.", fix=fix)
    return count


def _scan(
    where: str, f: Fun, init: Any, xs: Any, count: int, reverse: bool, user: Fun, checkpoint: Any = None, block: int = 1
) -> Any:
    """`scan` of `count` iterations; with `_Index` for xs, the element is the iteration's number and only the carry is returned.

    `user` is the function that the user gave, for messages; `block` the number of iterations that run together.
    """
    carry, indexed, name = Carry(where, init), xs is _Index, name_of(user)
    sequences = FlatTree(None if indexed else xs)
    stacked = [as_value(as_operand(leaf, where, "xs")) for leaf in sequences.dynamic]
    elements = [spec_of(x).update(shape=spec_of(x).shape[1:]) for x in stacked]
    n = len(carry.leaves)
    while True:
        box: list[Any] = []

        def body(step: Any, *values: Any, box: list[Any] = box) -> list[Any]:
            element = step if indexed else sequences.build(values[: len(elements)])
            result = _call(f, where, "f(carry, x)", carry.tree.build(values[len(elements) :]), element)
            if not isinstance(result, tuple) or len(result) != 2:
                problem = f"{name} must return a pair (carry, y), it returns {_kind_of(result)}."
                fix = "return carry, y — with None for y where there is nothing to stack."
                raise user_error(ArgumentTypeError, where, problem, fix=fix)
            following, changed = carry.accept(result[0], user)
            rows = FlatTree(result[1])
            box.extend((changed, rows))
            return [*following, *(as_value(as_operand(leaf, where, "y")) for leaf in rows.dynamic)]

        with activity(f"tracing {name} for {where.removeprefix('nnc.')}"):
            specs = [ITERATION, *elements, *carry.specs]
            axes = None if carry.axes is None else [NOWHERE, *[varying_over(x) for x in stacked], *carry.axes]
            weak = [indexed, *[is_weak(x) for x in stacked], *carry.weak]
            staged = stage(body, specs, weak=weak, name=name, axes=axes)
        if not box[0] and carry.is_settled:
            break
        carry.take(box[0])
        carry.is_settled = True
    bind_blocks = Blocks(staged, len(elements), n, bool(reverse), checkpoint).bind
    carried, ys = bind_blocks(stacked, carry.values, count, min(block, max(1, count)))
    last = carry.build(carried)
    if indexed:
        return last
    return last, box[1].build([with_weakness(y, is_weak(like)) for y, like in zip(ys, box[1].dynamic, strict=True)])


@spelled
def map(f: Callable[[Any], R], xs: object, *, batch_size: int | None = None) -> R:
    """`f` for each row of `xs`, one after the other, with the results stacked; with `batch_size`, that many at a time.

    Args:
        f: pytree -> pytree.
        xs: pytree of arrays with one leading length.
        batch_size: rows vectorised together.

    Example:
        >>> nnc.map(lambda x: x * x, nnp.asarray([1.0, 2.0]))
        Array([1., 4.], dtype=float32)
    """
    check_callable(f, "nnc.map")
    count = _length("nnc.map", xs, None)
    if batch_size is None:
        return _scan("nnc.map", lambda _, x: (None, _call(f, "nnc.map", "f(x)", x)), None, xs, count, False, f)[1]
    return vmap(f, chunk_size=batch_size)(xs)


@spelled
def associative_scan(fn: Callable[[X, X], X], elems: X, reverse: bool = False, axis: int = 0) -> X:
    """Returns all prefixes of a sequence combined by an associative function, in log2(n) steps (Blelloch, 1990).

    Args:
        fn: (a, b) -> c, associative, on pytrees like `elems` with any length along `axis`.
        elems: pytree of arrays of one length along `axis`.
        reverse: combine suffixes instead.
        axis: the sequence's axis.

    Returns:
        a pytree like `elems`: element i combines elements 0 to i.

    Example:
        >>> nnc.associative_scan(nnp.add, nnp.asarray([1.0, 2.0, 3.0]))
        Array([1., 3., 6.], dtype=float32)
    """
    check_callable(fn, "nnc.associative_scan")
    flat = FlatTree(elems)
    leaves = [as_operand(leaf, "nnc.associative_scan", "elems") for leaf in flat.dynamic]
    values, weak = [as_value(leaf) for leaf in leaves], [is_weak(leaf) for leaf in leaves]
    fronted = [move_axis(x, check_axis("nnc.associative_scan", axis, x.spec.ndim), 0) for x in values]
    _length("nnc.associative_scan", fronted, None)
    ordered = [flip(x, axes=(0,)) if reverse else x for x in fronted]

    def apply(a: list[Value], b: list[Value]) -> FlatTree:
        first, second = (flat.build([with_weakness(x, w) for x, w in zip(xs, weak, strict=True)]) for xs in (a, b))
        result = FlatTree(_call(fn, "nnc.associative_scan", "fn(a, b)", first, second))
        if result.treedef != flat.treedef:
            raise tree.tree_mismatch(
                "nnc.associative_scan", "elems", flat.build(a), "fn's result", result.build(result.dynamic)
            )
        return result

    def combine(a: list[Value], b: list[Value]) -> list[Value]:
        result = apply(a, b)
        found = [
            as_value(astype(y, x.spec.dtype, "nnc.associative_scan") if w and is_weak(y) else y)
            for x, w, y in zip(a, weak, result.dynamic, strict=True)
        ]
        for path, x, y in zip(flat.paths(), a, found, strict=True):
            if spec_of(x) != spec_of(y):
                raise user_error(
                    DTypeError if spec_of(x).shape == spec_of(y).shape else ShapeError,
                    "nnc.associative_scan",
                    f"{name_of(fn)} must keep shape and dtype{' at ' + path if path else ''}.",
                    operands={"argument": spec_of(x), "result": spec_of(y)},
                    fix="return arrays of the shapes and dtypes of the first argument, whose leading axis holds several elements.",
                )
        return found

    while any(weak) and ordered[0].spec.shape[0] > 1:
        heads = [slice_axis(x, 0, 0, 1) for x in ordered]
        changed = _turned(ordered, weak, apply(heads, heads))
        if not changed:
            break
        for i, (dtype, kind) in changed.items():
            ordered[i], weak[i] = as_value(astype(ordered[i], dtype, "nnc.associative_scan")), kind
    scanned = _prefixes(combine, ordered)
    restored = [flip(x, axes=(0,)) if reverse else x for x in scanned]
    rows = [move_axis(x, 0, axis % x.spec.ndim) for x in restored]
    return flat.build([with_weakness(x, w) for x, w in zip(rows, weak, strict=True)])


def _turned(
    xs: Sequence[Value], weak: Sequence[dtypes.Weakness], result: FlatTree
) -> dict[int, tuple[dtypes.DType, dtypes.Weakness]]:
    """Returns the dtypes and the weakness that weak elements take by a function's result."""
    changed = {}
    for i, (x, w, y) in enumerate(zip(xs, weak, result.dynamic, strict=True)):
        own, other = x.spec.dtype, spec_of(y).dtype
        kind = dtypes.joint_weakness([(own, w), (other, is_weak(y))])
        if is_weak(y) and keeps(with_weakness(x, w), own, y, other):
            other = own
        if w and (other != own or kind is not w) and takes(other, own):
            changed[i] = other, kind
    return changed


def _kind_of(result: Any) -> str:
    """Returns the type of a result, and the number of elements of a tuple."""
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"


def _prefixes(combine: Callable[[list[Value], list[Value]], list[Value]], xs: list[Value]) -> list[Value]:
    """Pairs are combined, their prefixes found recursively; those are the odd results, and one step more gives the even ones."""
    n = xs[0].spec.shape[0]
    if n < 2:
        return xs
    evens, odds = [_every_other(x, 0, n) for x in xs], [_every_other(x, 1, n) for x in xs]
    inner = _prefixes(combine, combine([slice_axis(x, 0, 0, n // 2) for x in evens], odds))
    heads = [slice_axis(x, 0, 0, 1) for x in evens]
    before = [slice_axis(x, 0, 0, (n - 1) // 2) for x in inner]
    rest = [slice_axis(x, 0, 1, (n + 1) // 2) for x in evens]
    later = combine(before, rest) if n > 2 else rest
    firsts = [concatenate(a, b, axis=0) for a, b in zip(heads, later, strict=True)]
    return [_interleave(a, b, n) for a, b in zip(firsts, inner, strict=True)]


def _every_other(x: Value, start: int, n: int) -> Value:
    rest = x.spec.shape[1:]
    return slice_(x, start=(start, *(0,) * len(rest)), limit=(n, *rest), stride=(2, *(1,) * len(rest)))


def _interleave(evens: Value, odds: Value, n: int) -> Value:
    rest = evens.spec.shape[1:]
    if evens.spec.shape[0] > odds.spec.shape[0]:  # pairs up; the padding is cut off again
        odds = concatenate(odds, slice_axis(evens, 0, 0, 1), axis=0)
    half = evens.spec.shape[0]
    pairs = concatenate(*[reshape(x, shape=(half, 1, *rest)) for x in (evens, odds)], axis=1)
    return slice_axis(reshape(pairs, shape=(2 * half, *rest)), 0, 0, n)
