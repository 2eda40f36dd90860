"""Derivatives for users: grad, vjp, jvp, linearize and transforms made of them. They nest in any order and depth.

Over 600 lines, since the types of each function stand with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Literal, Unpack, overload

import nnc.trace.rules  # noqa: F401  (registers the rules of all commands)
from nnc import tree
from nnc.array.array import Array, as_value, settled
from nnc.array.promote import dtype_of, is_weak, with_weakness
from nnc.base import dtypes
from nnc.base.context import activity, get_context
from nnc.calls.spelling import spelled
from nnc.commands import elementwise
from nnc.commands.rules import zeros
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph import spec_of
from nnc.trace.core.axes import matched, vary, varying_over
from nnc.trace.core.backward import check_linear, transpose_graph
from nnc.trace.core.collectives import mean_over
from nnc.trace.core.compiled_function import compiled_transform
from nnc.trace.core.dual import Linearized, run_jvp, run_linearize
from nnc.trace.core.flat import (
    FlatFunction,
    FlatTree,
    call_function,
    check_argnums,
    check_callable,
    check_positions,
    function_of,
    name_of,
)
from nnc.trace.core.specs import as_wanted, outline, shapes_of, stage_function
from nnc.trace.core.staging import axes_of
from nnc.typing import A, Aux, B, First, Kinds, Leaf, No, P, R, Second, Ts, X, Yes, Zero

__all__ = ["grad", "hvp", "jvp", "linear_transpose", "linearize", "stop_gradient", "value_and_grad", "vjp"]

Fun = Callable[..., Any]
Argnums = int | Sequence[int]


# -- reverse mode ------------------------------------------------------------------------------------------------------


@overload
def grad(
    fun: First[Array, P, Leaf] | First[float, P, Leaf], argnums: Zero = 0, has_aux: No = False, **options: Unpack[Kinds]
) -> First[Leaf, P, Array]: ...
@overload
def grad(
    fun: First[A, P, Leaf], argnums: Zero = 0, has_aux: No = False, **options: Unpack[Kinds]
) -> First[A, P, A]: ...
@overload
def grad(
    fun: First[A, P, tuple[Leaf, Aux]], argnums: Zero = 0, *, has_aux: Yes, **options: Unpack[Kinds]
) -> First[A, P, tuple[A, Aux]]: ...
@overload
def grad(
    fun: Second[X, A, P, Leaf], argnums: Literal[1], has_aux: No = False, **options: Unpack[Kinds]
) -> Second[X, A, P, A]: ...
@overload
def grad(
    fun: Callable[Concatenate[A, B, P], Leaf],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: No = False,
    **options: Unpack[Kinds],
) -> Callable[Concatenate[A, B, P], tuple[A, B]]: ...
@overload
def grad(
    fun: Callable[P, object],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    argnames: str | Sequence[str] | None = None,
    **options: Unpack[Kinds],
) -> Callable[P, object]: ...
@spelled
@compiled_transform()
def grad(
    fun: Fun,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    argnames: str | Sequence[str] | None = None,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Any:
    """Returns the gradient of a function with one number as result.

    Args:
        fun: returns a 0-d float (or, with `has_aux`, a pair of it and anything).
        argnums: positions to differentiate.
        has_aux: `fun` returns a pair of the number and anything.
        argnames: keyword arguments to differentiate, besides or instead.
        holomorphic: complex input and output.
        allow_int: integer arguments get zeros instead of an error.

    Returns:
        a function of the same arguments: the gradient, a pytree like the argument (a tuple of them where `argnums` is a
        sequence); with `has_aux`, a pair of it and the second result. Leaves that are no numbers stay as they are.

    Raises:
        ShapeError: the result is no scalar.
        DTypeError: the result or an argument is not floating-point.

    Example:
        >>> nnc.grad(lambda x: x**2 + nnp.log(1 / x))(0.84)
        Array(0.4895238, dtype=float32)
    """
    both = _differentiate("nnc.grad", fun, argnums, has_aux, argnames, holomorphic, allow_int)

    @wraps(fun)
    @api_boundary
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


@overload
def value_and_grad(
    fun: First[Array, P, Leaf] | First[float, P, Leaf], argnums: Zero = 0, has_aux: No = False, **options: Unpack[Kinds]
) -> First[Leaf, P, tuple[Array, Array]]: ...
@overload
def value_and_grad(
    fun: First[A, P, Leaf], argnums: Zero = 0, has_aux: No = False, **options: Unpack[Kinds]
) -> First[A, P, tuple[Array, A]]: ...
@overload
def value_and_grad(
    fun: First[A, P, tuple[Leaf, Aux]], argnums: Zero = 0, *, has_aux: Yes, **options: Unpack[Kinds]
) -> First[A, P, tuple[tuple[Array, Aux], A]]: ...
@overload
def value_and_grad(
    fun: Second[X, A, P, Leaf], argnums: Literal[1], has_aux: No = False, **options: Unpack[Kinds]
) -> Second[X, A, P, tuple[Array, A]]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[A, B, P], Leaf],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: No = False,
    **options: Unpack[Kinds],
) -> Callable[Concatenate[A, B, P], tuple[Array, tuple[A, B]]]: ...
@overload
def value_and_grad(
    fun: Callable[P, object],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    argnames: str | Sequence[str] | None = None,
    **options: Unpack[Kinds],
) -> Callable[P, tuple[object, object]]: ...
@spelled
@compiled_transform()
def value_and_grad(
    fun: Fun,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    argnames: str | Sequence[str] | None = None,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Any:
    """Returns the value and the gradient of a function with one number as result; see `grad`.

    Args:
        fun: returns a 0-d float (or, with `has_aux`, a pair of it and anything).
        argnums: positions to differentiate.
        has_aux: `fun` returns a pair of the number and anything.
        argnames: keyword arguments to differentiate, besides or instead.
        holomorphic: complex input and output.
        allow_int: integer arguments get zeros instead of an error.

    Returns:
        a function that returns (value, gradient), or ((value, aux), gradient) with `has_aux`.

    Example:
        >>> nnc.value_and_grad(lambda x: x * x)(3.0)
        (Array(9., dtype=float32), Array(6., dtype=float32))
    """
    return _differentiate("nnc.value_and_grad", fun, argnums, has_aux, argnames, holomorphic, allow_int)


def _differentiate(
    transform: str,
    fun: Fun,
    argnums: Argnums,
    has_aux: bool,
    argnames: str | Sequence[str] | None,
    holomorphic: bool,
    allow_int: bool,
) -> Fun:
    check_callable(fun, transform)
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames or ())
    fix = "name positional arguments by number, keyword arguments with argnames."
    positions = check_argnums(transform, argnums, fix) if not (names and argnums == 0) else ()
    single = (isinstance(argnums, int) and not names) or (isinstance(argnames, str) and not positions)

    @wraps(fun)
    @api_boundary
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen = _choose(transform, fun, args, kwargs, positions, names)
        flats = [FlatTree(value) for value in chosen]
        leaves = [leaf for flat in flats for leaf in flat.dynamic]
        active = active_leaves(transform, flats, holomorphic, allow_int)
        part = function_of(fun, args, kwargs, positions, names)
        aux: list[Any] = []

        def scalar(*values: Any) -> list[Any]:
            at = iter(values)
            out = part(*[flat.build([next(at) for _ in flat.where]) for flat in flats])
            extra: list[Any] = []
            if has_aux:
                out, rest = _split_aux(transform, out)
                aux.append(FlatTree(rest))
                extra = aux[-1].dynamic
            loss = _check_scalar(transform, fun, out, holomorphic)
            return [mean_over(loss, [axis for axis in get_context().axes if axis.means]), *extra]

        with activity(f"tracing {name_of(fun)} for {transform.removeprefix('nnc.')}"):
            outputs, linear = run_linearize(scalar, leaves, active)
            ct = as_value(outputs[0].spec.dtype.type(1))
            found = iter(_pull(linear, [ct] + [None] * (len(outputs) - 1)))
        moved = [next(found) if on else zeros(as_value(leaf).spec) for on, leaf in zip(active, leaves, strict=True)]
        gradients = [with_weakness(x, is_weak(leaf)) for x, leaf in zip(moved, leaves, strict=True)]
        at = iter(gradients)
        trees = tuple(flat.build([next(at) for _ in flat.where]) for flat in flats)
        value = (outputs[0], aux[0].build(outputs[1:])) if has_aux else outputs[0]
        return value, trees[0] if single else trees

    return wrapped


@overload
def vjp(
    fun: Callable[[Array], R], primal: Leaf, /, *, has_aux: No = False
) -> tuple[R, Callable[[R], tuple[Array]]]: ...
@overload
def vjp(fun: Callable[[*Ts], R], *primals: *Ts, has_aux: No = False) -> tuple[R, Callable[[R], tuple[*Ts]]]: ...
@overload
def vjp(
    fun: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Yes
) -> tuple[R, Callable[[R], tuple[*Ts]], Aux]: ...
@spelled  # type: ignore[misc]  # mypy tells *Ts from *Any
def vjp(fun: Fun, *primals: Any, has_aux: bool = False) -> Any:
    """Returns the value of `fun` and its pull-back.

    Args:
        fun: function of the `primals`.
        *primals: arguments of `fun`.
        has_aux: `fun` returns (result, aux).

    Returns:
        (result, vjp_fn), or (result, vjp_fn, aux). `vjp_fn(ct)` takes a cotangent like the result and returns a tuple
        of cotangents, one for each primal.

    Raises:
        DTypeError: no primal is of floating point.
        TreeError, ShapeError, DTypeError (from `vjp_fn`): the cotangent does not match the result.

    Example:
        >>> y, pull = nnc.vjp(lambda x: x * x, nnp.asarray([1.0, 2.0]))
        >>> pull(nnp.asarray([1.0, 1.0]))
        (Array([2., 4.], dtype=float32),)
    """
    check_callable(fun, "nnc.vjp")
    result, arguments, linear, active, aux = _linearize("vjp", fun, primals, has_aux)
    like, axes = shapes_of(result), axes_of(FlatTree(result).dynamic)

    @api_boundary
    def vjp_fn(ct: Any) -> tuple[Any, ...]:
        cts = matched(_match("vjp_fn", "the cotangent", ct, "the result", like), axes)
        with activity(f"pulling a cotangent back through {name_of(fun)}"):
            found = iter(_pull(linear, [*cts, *[None] * (len(linear.nonzero) - len(cts))]))
        outlines = zip(active, arguments.dynamic, strict=True)
        gradients = [with_weakness(next(found) if on else zeros(x.spec), is_weak(x)) for on, x in outlines]
        return tuple(arguments.build(gradients))

    return (result, vjp_fn, aux) if has_aux else (result, vjp_fn)


def _pull(linear: Linearized, cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of the active inputs, zeros filled in."""
    kept = [ct for ct, on in zip(cotangents, linear.nonzero, strict=True) if on]
    found = transpose_graph(linear.staged.graph, len(linear.input_specs), linear.staged.captured, kept)
    return [zeros(spec) if ct is None else ct for ct, spec in zip(found, linear.input_specs, strict=True)]


@api_boundary
def linear_transpose(fun: Callable[[*Ts], R], *primals: object) -> Callable[[R], tuple[*Ts]]:
    """Returns the transpose of a function that is linear in its arguments.

    Args:
        fun: a linear function.
        *primals: arrays or ShapeDtypeStructs; only their shapes and dtypes are read.

    Returns:
        a function from a cotangent like the result to a tuple of cotangents like `primals`.

    Raises:
        UnsupportedError: `fun` is not linear.

    Example:
        >>> nnc.linear_transpose(lambda x: 3 * x, nnp.ones(2))(nnp.asarray([1.0, 2.0]))
        (Array([3., 6.], dtype=float32),)
    """
    check_callable(fun, "nnc.linear_transpose")
    with activity(f"tracing {name_of(fun)} for linear_transpose"):
        staged, flat = stage_function(fun, primals)
        check_linear("nnc.linear_transpose", staged.graph, staged.captured, "leave constant parts out of the function.")
    arguments = FlatTree(shapes_of(primals))
    leaves = zip(staged.graph.output_specs, flat.result.dynamic, strict=True)
    like = flat.build_result([outline(spec, is_weak(leaf)) for spec, leaf in leaves])

    @api_boundary
    def transposed(ct: Any) -> tuple[Any, ...]:
        cts = matched(_match("linear_transpose", "the cotangent", ct, "the result", like), staged.axes or None)
        found = transpose_graph(staged.graph, staged.num_explicit, staged.captured, cts)
        inputs = staged.graph.input_specs
        return tuple(arguments.build([zeros(s) if x is None else x for x, s in zip(found, inputs, strict=False)]))

    return transposed


# -- forward mode ------------------------------------------------------------------------------------------------------


@overload
def jvp(
    fun: Callable[..., R], primals: Sequence[object], tangents: Sequence[object], has_aux: No = False
) -> tuple[R, R]: ...
@overload
def jvp(
    fun: Callable[..., tuple[R, Aux]], primals: Sequence[object], tangents: Sequence[object], has_aux: Yes
) -> tuple[R, R, Aux]: ...
@spelled
def jvp(fun: Fun, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """Returns the value of `fun` and its derivative in the direction `tangents`.

    Args:
        fun: function of pytrees.
        primals: tuple or list of arguments.
        tangents: the same structure, shapes and dtypes; those of integers are not read.
        has_aux: `fun` returns (result, aux).

    Returns:
        (result, tangent), or (result, tangent, aux) with `has_aux`.

    Raises:
        TreeError, ShapeError, DTypeError: tangents do not match primals, or no primal is of floating point.

    Example:
        >>> nnc.jvp(nnp.sin, (0.0,), (2.0,))
        (Array(0., dtype=float32), Array(2., dtype=float32))
    """
    return run_push("nnc.jvp", fun, primals, tangents, has_aux)


def run_push(where: str, fun: Fun, primals: Any, tangents: Any, has_aux: bool) -> Any:
    """Returns the result of `jvp`, for the function `where` of nnc."""
    _check_directions(where, fun, primals, tangents)
    flat = FlatFunction.of(_aux_last(fun, where) if has_aux else fun, tuple(primals))
    given = _match(where, "tangents", tuple(tangents), "primals", tuple(primals))
    leaves = flat.leaves
    _check_floats(where, leaves)
    if get_context().axes:  # where a tangent varies over a named axis its primal does
        leaves = [vary(as_value(p), varying_over(t)) for p, t in zip(leaves, given, strict=True)]
        given = [vary(t, varying_over(p)) for p, t in zip(leaves, given, strict=True)]
    seeds = [t if dtypes.is_inexact(dtype_of(p)) else None for p, t in zip(leaves, given, strict=True)]
    with activity(f"tracing {name_of(fun)} for jvp"):
        outputs, moved = run_jvp(flat, leaves, seeds)
    filled = [_zero_tangent(p) if t is None else t for p, t in zip(outputs, moved, strict=True)]
    result, direction = flat.build_result(outputs), flat.build_result(filled)
    return (result[0], direction[0], result[1]) if has_aux else (result, direction)


def _check_directions(where: str, fun: Any, primals: Any, tangents: Any) -> None:
    """Raises ArgumentTypeError unless `fun` is a function, and its arguments and their directions are sequences."""
    check_callable(fun, where)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        problem = "primals and tangents must be tuples or lists, one entry for each argument."
        operands = {"primals": type(primals).__name__, "tangents": type(tangents).__name__}
        fix = f"write {where}(f, (x,), (t,))."
        raise user_error(ArgumentTypeError, where, problem, operands=operands, fix=fix)


@overload
def linearize(fun: Callable[[Array], R], primal: Leaf, /, *, has_aux: No = False) -> tuple[R, Callable[[Leaf], R]]: ...
@overload
def linearize(fun: Callable[P, R], *primals: object, has_aux: No = False) -> tuple[R, Callable[P, R]]: ...
@overload
def linearize(fun: Callable[P, tuple[R, Aux]], *primals: object, has_aux: Yes) -> tuple[R, Callable[P, R], Aux]: ...
@spelled
def linearize(fun: Fun, *primals: Any, has_aux: bool = False) -> Any:
    """Returns the value of `fun` and its derivative as a linear function of the tangents, computed once and applied many times.

    Loops of unknown length run again each time: the values of their iterations are not kept.

    Args:
        fun: function of pytrees.
        *primals: arguments of `fun`.
        has_aux: `fun` returns (result, aux).

    Returns:
        (result, jvp_fn), or (result, jvp_fn, aux): `jvp_fn(*tangents)` is the tangent of the result.

    Raises:
        DTypeError: no primal is of floating point.

    Example:
        >>> y, push = nnc.linearize(lambda x: x**3, 2.0)
        >>> push(1.0), push(10.0)
        (Array(12., dtype=float32), Array(120., dtype=float32))
    """
    check_callable(fun, "nnc.linearize")
    result, _, linear, active, aux = _linearize("linearize", fun, primals, has_aux)
    out, like, axes = FlatTree(shapes_of(result)), shapes_of(primals), axes_of(FlatTree(primals).dynamic)

    @api_boundary
    def jvp_fn(*tangents: Any) -> Any:
        given = matched(_match("jvp_fn", "tangents", tangents, "primals", like), axes)
        pushed = linear.push([t for t, on in zip(given, active, strict=True) if on])
        return out.build(pushed[: len(out.where)])

    return (result, jvp_fn, aux) if has_aux else (result, jvp_fn)


@overload
def hvp(fun: Callable[[A], Leaf], primals: Sequence[object], tangents: Sequence[object]) -> A: ...
@overload
def hvp(fun: Callable[[*Ts], Leaf], primals: Sequence[object], tangents: Sequence[object]) -> tuple[*Ts]: ...
@spelled
def hvp(fun: Fun, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Returns the product of the Hessian of `fun` with `tangents`, forward over reverse, at the cost of a few gradients.

    Args:
        fun: returns one number.
        primals: tuple of arguments.
        tangents: tuple of directions, one for each argument.

    Returns:
        a pytree like the argument (a tuple of them where there are several).

    Example:
        >>> nnc.hvp(lambda x: nnp.sum(x**3), (nnp.asarray([1.0, 2.0]),), (nnp.asarray([1.0, 0.0]),))
        Array([6., 0.], dtype=float32)
    """
    _check_directions("nnc.hvp", fun, primals, tangents)
    argnums: Argnums = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return run_push("nnc.hvp", grad(fun, argnums), primals, tangents, False)[1]


@spelled
def stop_gradient(x: A) -> A:
    """Returns `x` with derivative zero: every transform takes it for a constant.

    Args:
        x: a pytree.

    Example:
        >>> nnc.grad(lambda x: x * nnc.stop_gradient(x))(3.0)
        Array(3., dtype=float32)
    """
    return tree.map(lambda leaf: elementwise.stop_gradient(leaf) if tree.is_array(leaf) else leaf, x)


# -- shared ------------------------------------------------------------------------------------------------------------


def _linearize(transform: str, fun: Fun, primals: tuple[Any, ...], has_aux: bool) -> Any:
    """(result, shapes of the arguments, linear map, active leaves, aux or None) at the primals.

    The values kept for later are only the ones that the linear map reads.
    """
    flat = FlatFunction.of(_aux_last(fun, f"nnc.{transform}") if has_aux else fun, primals)
    _check_floats(f"nnc.{transform}", flat.leaves)
    active = [dtypes.is_inexact(dtype_of(leaf)) for leaf in flat.leaves]
    with activity(f"tracing {name_of(fun)} for {transform}"):
        outputs, linear = run_linearize(flat, flat.leaves, active, forward=transform == "linearize")
        # the map may run later, when the memory of the primals may have been overwritten
        captured = tuple(map(settled, linear.staged.captured))
        linear = linear._replace(staged=linear.staged._replace(captured=captured))
    result = flat.build_result(outputs)
    arguments = FlatTree(shapes_of(primals))
    return (result[0], arguments, linear, active, result[1]) if has_aux else (result, arguments, linear, active, None)


def _aux_last(fun: Fun, transform: str) -> Fun:
    @wraps(fun)
    def pair(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return _split_aux(transform, call_function(fun, args, kwargs))

    return pair


def _split_aux(transform: str, out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        problem = f"with has_aux=True the function must return a pair (value, aux), not {type(out).__name__}."
        raise user_error(ArgumentTypeError, transform, problem, fix="return value, aux — or drop has_aux.")
    return out


def _zero_tangent(x: Any) -> Any:
    return zeros(as_value(x).spec)


def _match(where: str, left_name: str, left: Any, right_name: str, right: Any) -> list[Any]:
    """Returns the dynamic leaves of `left`, which must match the leaves of `right` in structure, shape and dtype."""
    tree.check_same_structure(where, left_name, left, right_name, right)
    a, b = FlatTree(left), FlatTree(right)
    for i in sorted({*a.where} ^ {*b.where}):
        problem = f"{left_name} holds {a.leaves[i]!r} where {right_name} holds {b.leaves[i]!r}."
        fix = f"give arrays in {left_name} where {right_name} has arrays, and the same settings elsewhere."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)
    result = []
    for path, x, y in zip(a.paths(), a.dynamic, b.dynamic, strict=True):
        want = as_value(y).spec
        x = as_wanted(x, y, where)
        have = spec_of(x)
        if have.shape != want.shape or (have.dtype != want.dtype and dtypes.is_inexact(want.dtype)):
            problem = f"{left_name} does not match {right_name}{' at ' + path if path else ''}."
            operands = {left_name: have, right_name: want}
            fix = f"give {left_name} the shape and dtype of {right_name}."
            raise user_error(
                ShapeError if have.shape != want.shape else DTypeError, where, problem, operands=operands, fix=fix
            )
        result.append(as_value(x))
    return result


def _choose(
    transform: str,
    fun: Fun,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    positions: tuple[int, ...],
    names: tuple[str, ...],
) -> list[Any]:
    for i in positions:
        if not -len(args) <= i < len(args):
            problem = (
                f"argnums names argument {i}, but {name_of(fun)} was called with {len(args)} positional arguments."
            )
            fix = "pass the argument by position, or name it in argnames."
            raise user_error(ArgumentError, transform, problem, operands={"signature": _signature(fun)}, fix=fix)
    for name in names:
        if name not in kwargs:
            known = _names(fun)
            problem = f"argnames names {name!r}, which was not passed by keyword."
            fix = (
                f"call with {name}=..."
                if known is None or name in known
                else f"name one of its parameters: {', '.join(known) or 'it has none'}."
            )
            raise user_error(ArgumentError, transform, problem, operands={"signature": _signature(fun)}, fix=fix)
    check_positions(transform, "argnums", positions, len(args))
    return [args[i] for i in positions] + [kwargs[name] for name in names]


def _names(fun: Fun) -> list[str] | None:
    """Returns the names of a function's parameters; None where it takes any name, or has no signature."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _signature(fun: Fun) -> str:
    try:
        return f"{name_of(fun)}{inspect.signature(fun)}"
    except (TypeError, ValueError):
        return name_of(fun)


def active_leaves(transform: str, flats: list[FlatTree], holomorphic: bool, allow_int: bool) -> list[bool]:
    """Returns which leaves are differentiated. An argument without any float is a mistake; integers beside floats are passed by."""
    active = []
    for flat in flats:
        kinds = [dtype_of(leaf) for leaf in flat.dynamic]
        wanted = dtypes.is_complex if holomorphic else dtypes.is_inexact
        on = [wanted(dtype) for dtype in kinds]
        if not any(on) and not allow_int and kinds:
            needed = "complex input with holomorphic=True" if holomorphic else "floating-point input"
            raise _without_floats(transform, flat.dynamic[0], needed, ", choose another argnums, or set allow_int=True")
        if not kinds:
            problem = "the argument to differentiate holds no arrays or numbers."
            fix = "pass a pytree with float leaves, or choose another argnums."
            raise user_error(DTypeError, transform, problem, fix=fix)
        active += on
    return active


def _check_floats(transform: str, leaves: Sequence[Any]) -> None:
    """Raises where no argument has a derivative."""
    if leaves and not any(dtypes.is_inexact(dtype_of(leaf)) for leaf in leaves):
        raise _without_floats(transform, leaves[0], "floating-point input")


def _without_floats(transform: str, leaf: Any, needed: str, others: str = "") -> DTypeError:
    problem = f"it differentiates with respect to {dtype_of(leaf).name}; a derivative needs {needed}."
    fix = f"pass a float (1.0 instead of 1, x.astype('float32')){others}."
    return user_error(DTypeError, transform, problem, operands={"argument": as_value(leaf).shown}, fix=fix)


def _check_scalar(transform: str, fun: Fun, out: Any, holomorphic: bool) -> Any:
    leaves = FlatTree(out).dynamic
    if len(leaves) != 1 or not tree.is_array(out):
        problem = f"{name_of(fun)} must return one number, it returns {_kind(out)}."
        advice = "return a scalar loss; return other values as aux with has_aux=True."
        raise user_error(ShapeError, transform, problem, fix=advice)
    x = as_value(out)
    if x.spec.shape != ():
        problem = f"{name_of(fun)} must return a scalar, it returns {x.shown}."
        advice = "reduce it, for example with nnp.mean(...) or nnp.sum(...); for all rows use nnc.jacrev."
        raise user_error(ShapeError, transform, problem, operands={"result": x.shown}, fix=advice)
    wanted = dtypes.is_complex if holomorphic else dtypes.is_float
    if not wanted(x.spec.dtype):
        fix = (
            "return a complex number."
            if holomorphic
            else "return a float: take nnp.real(...) or nnp.abs(...) of complex results."
            if dtypes.is_complex(x.spec.dtype)
            else "return a float that is computed with floats: integers and truth values have no derivative."
        )
        problem = f"{name_of(fun)} must return a {'complex' if holomorphic else 'real floating-point'} number."
        raise user_error(DTypeError, transform, problem, operands={"result": x.shown}, fix=fix)
    return x


def _kind(out: Any) -> str:
    return f"a {type(out).__name__}" if out is not None else "None"
