"""Functions with derivatives given by the user: custom_jvp and custom_vjp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, Generic, Self, overload

from nnc import tree
from nnc.array.array import as_value
from nnc.array.promote import is_weak, with_weakness
from nnc.base.context import activity, get_context
from nnc.commands import control
from nnc.commands.rules import is_differentiable, lead, zeros
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    InternalError,
    ShapeError,
    UnsupportedError,
    user_error,
)
from nnc.errors.tracebacks import api_boundary
from nnc.graph import Graph, TensorSpec, bind, find_interpreter, spec_of
from nnc.graph import command as get_command
from nnc.graph.registry import batch, derivative
from nnc.graph.rules import Derivative, Tangents, Value
from nnc.trace.core.axes import aligned, varying_over
from nnc.trace.core.custom_axes import Place
from nnc.trace.core.custom_rules import JvpRule, Pull, Rule, VjpRule
from nnc.trace.core.dual import DualTrace
from nnc.trace.core.dual_tracer import DualTracer
from nnc.trace.core.eager import EagerInterpreter
from nnc.trace.core.flat import FlatFunction, FlatTree, call_function, check_callable, check_positions, name_of
from nnc.trace.core.on_device import DeviceInterpreter
from nnc.trace.core.specs import argument_spec, as_wanted, shapes_of, stage_flat
from nnc.trace.core.subgraphs import bind_for_rows, input_values, one_row
from nnc.typing import P, Q, R, R_co, S

__all__ = ["custom_jvp", "custom_vjp"]

Fun = Callable[..., Any]

Fixed = dict[int, Any]  # arguments that are not differentiated, by position


def _merge(fixed: Fixed, others: Sequence[Any]) -> list[Any]:
    """Merges the fixed and the other arguments, in order."""
    rest = iter(others)
    return [fixed[i] if i in fixed else next(rest) for i in range(len(fixed) + len(others))]


class _Custom(Generic[P, R_co]):
    """A function whose derivative the user gives. `nondiff_argnums` are handed to the rules first, as they are."""

    transform = ""
    is_elementwise = False

    def __init__(self, fun: Callable[P, R_co], nondiff_argnums: int | Sequence[int] = ()) -> None:
        check_callable(fun, f"nnc.{self.transform}")
        update_wrapper(self, fun)
        self.fun = fun
        self.nondiff = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)

    def _split(self, args: tuple[Any, ...]) -> tuple[Fixed, tuple[Any, ...]]:
        """Returns the arguments that are not differentiated, by position, and the others."""
        positions = check_positions(f"nnc.{self.transform}", "nondiff_argnums", self.nondiff, len(args))
        return {i: args[i] for i in positions}, tuple(x for i, x in enumerate(args) if i not in positions)

    def _whole(self, fixed: Fixed) -> Fun:
        """`fun` of the other arguments alone."""

        def part(*others: Any) -> Any:
            return call_function(self.fun, _merge(fixed, others))

        part.__name__ = name_of(self.fun)
        return part

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self: _Custom[Concatenate[S, Q], R], instance: S, owner: type | None = None) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        call: Any = self
        return self if instance is None else lambda *args: call(instance, *args)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if kwargs:
            problem = f"{name_of(self.fun)} was called with keyword arguments {', '.join(kwargs)}."
            fix = "pass all arguments of a function with a custom derivative by position."
            raise user_error(ArgumentError, f"nnc.{self.transform}", problem, fix=fix)
        return args

    @api_boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        fixed, others = self._split(self._positional(args, kwargs))
        flat = FlatFunction.of(self._whole(fixed), others)
        flat.arguments.dynamic = aligned(flat.leaves)  # so that each cotangent varies over the axes of its argument
        top = find_interpreter(flat.leaves)
        if isinstance(top, (EagerInterpreter, DeviceInterpreter)):
            result = call_function(self.fun, args)
            if any(isinstance(x, DualTracer) for x in FlatTree(result).dynamic):
                raise _captured_error(self.transform)
            return result
        rule, axes = self._rule(fixed, flat), get_context().axes
        leaves, over = flat.leaves, list(map(varying_over, flat.leaves))
        flat.arguments = FlatTree(shapes_of((others, {})))  # the rules keep `flat`, which must not keep the values
        place = Place(self, axes)
        if axes:  # the rules may run when the axes are gone, for all places at once
            leaves = [*(axis.index for axis in axes), *leaves]
        if isinstance(top, DualTrace) and not (self.is_elementwise and any(getattr(x, "origin", None) for x in leaves)):
            rule = rule.within(place, over) if axes else rule
            pairs = [top.split(x) for x in leaves]
            outputs, moved = rule([p for p, _ in pairs], [t for _, t in pairs])
            if any(isinstance(x, DualTracer) and x.owner is top for x in outputs):
                raise _captured_error(self.transform)
            line = get_context().source
            duals = [
                x if t is None else DualTracer(top, x, t, line, x.weak) for x, t in zip(outputs, moved, strict=True)
            ]
            return flat.build_result(duals)
        with activity(f"tracing {name_of(self.fun)} for {self.transform}"):
            if axes:
                settle = lambda found: rule.settled(place, leaves, over, found)
                traced = place.trace(flat, leaves, over, settle, is_rule=False)
                staged, bound = traced.staged, rule.within(place, over, traced.axes)
            else:
                staged, bound = stage_flat(flat, name_of(self.fun)), rule
        operands = [*input_values(leaves), *staged.captured]
        params = {"rule": bound, "args": len(leaves)}
        return flat.build_result(bind(get_command(self.transform), operands, params, (staged.graph,)))

    def _rule(self, fixed: Fixed, flat: FlatFunction) -> Rule:
        """Returns the user's rules on flat values.

        Raises:
            UnsupportedError: the user has not defined the rules.
        """
        raise InternalError(f"{self.transform} is not to be used by itself")

    def _missing(self, method: str) -> UnsupportedError:
        problem = f"{name_of(self.fun)} has no derivative rule."
        fix = f"define it with {name_of(self.fun)}.{method}."
        return user_error(UnsupportedError, f"nnc.{self.transform}", problem, fix=fix)


class custom_jvp(_Custom[P, R_co]):  # noqa: N801  (a decorator)
    """A function whose forward derivative you define; reverse mode follows by transposing it.

    Args:
        fun: the function.
        nondiff_argnums: positions of arguments that are not differentiated; they are given to the rule first.

    Example:
        >>> @nnc.custom_jvp
        ... def f(x):
        ...     return nnp.sin(x)
        >>> @f.defjvp
        ... def f_jvp(primals, tangents):
        ...     (x,), (t,) = primals, tangents
        ...     return f(x), 10 * nnp.cos(x) * t
        >>> nnc.grad(f)(0.0)
        Array(10., dtype=float32)
    """

    transform = "custom_jvp"

    @api_boundary
    def __init__(self, fun: Callable[P, R_co], nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self.rule: Fun | None = None
        self.by_argument = False  # `rule` takes None for tangents of arguments that are not differentiated

    def defjvp(self, rule: Callable[Q, R]) -> Callable[Q, R]:
        """Sets the rule `(primals, tangents) -> (result, tangent)`; returns it, so it can decorate.

        Args:
            rule: (primals, tangents) -> (result, tangent).
        """
        self.rule, self.by_argument = rule, False
        return rule

    def defjvps(self, *rules: Fun | None) -> None:
        """Sets one rule `(t, result, *primals) -> tangent` for each argument; None where the derivative is zero.

        Where all arguments are arrays, rules of those that are not differentiated do not run.

        Args:
            *rules: for each argument (t, result, *primals) -> tangent, or None.

        Raises:
            ArgumentError: the function has `nondiff_argnums`.
        """
        if self.nondiff:
            problem = f"{name_of(self.fun)} has nondiff_argnums, which these rules would not get."
            fix = "define one rule with defjvp; it is called as rule(*nondiff, primals, tangents)."
            raise user_error(ArgumentError, "defjvps", problem, fix=fix)

        call: Any = self

        def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            result = call(*primals)
            each = zip(rules, tangents, strict=True)
            terms = [r(t, result, *primals) for r, t in each if r is not None and t is not None]
            total = terms[0] if terms else tree.map(lambda x: zeros(as_value(x).spec), result)
            for term in terms[1:]:
                total = tree.map(lambda a, b: a + b, total, term)
            return result, total

        self.rule, self.by_argument = rule, True

    def _rule(self, fixed: Fixed, flat: FlatFunction) -> JvpRule:
        rule, where = self.rule, f"the jvp rule of {name_of(self.fun)}"
        if rule is None:
            raise self._missing("defjvp")
        nondiff = "*nondiff, " if fixed else ""

        def push(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            primals = _as_given(flat, primals)
            arguments = flat.arguments.build(primals)[0]
            filled: Sequence[Any] = tangents
            plain = len(arguments) == len(primals) and all(x is p for x, p in zip(arguments, primals, strict=True))
            if not (self.by_argument and plain):
                filled = [zeros(as_value(p).spec) if t is None else t for p, t in zip(primals, tangents, strict=True)]
            filled = [t if t is None else with_weakness(t, p.weak) for p, t in zip(primals, filled, strict=True)]
            with activity(f"running {where}"):
                given = [*fixed.values(), arguments, flat.arguments.build(filled)[0]]
                result = call_function(rule, given, where=where, fix=f"define it as rule({nondiff}primals, tangents).")
            result = _check_pair(
                where, result, "return value, tangent — both with the structure of the function's result."
            )
            tree.check_same_structure(where, "the tangent", result[1], "the result", result[0])
            outputs = _outputs(flat, result[0])
            pairs = zip(FlatTree(result[1]).dynamic, outputs, strict=True)
            moved = [_fit(where, "the tangent", t, "the result", x) for t, x in pairs]
            return outputs, [t if is_differentiable(x.spec) else None for x, t in zip(outputs, moved, strict=True)]

        return JvpRule(push, is_elementwise=self.is_elementwise)


class elementwise_jvp(custom_jvp[P, R_co]):  # noqa: N801  (a decorator)
    """A custom_jvp of one array, whose elements are computed one by one: it may be a smooth function of a root."""

    is_elementwise = True


class custom_vjp(_Custom[P, R_co]):  # noqa: N801  (a decorator)
    """A function whose reverse derivative you define.

    Args:
        fun: the function.
        nondiff_argnums: positions of arguments that are not differentiated; they are given to `bwd` first, and to `fwd`
            in their places.

    Example:
        >>> @nnc.custom_vjp
        ... def f(x):
        ...     return nnp.sin(x)
        >>> f.defvjp(lambda x: (f(x), nnp.cos(x)), lambda cos_x, ct: (10 * cos_x * ct,))
        >>> nnc.grad(f)(0.0)
        Array(10., dtype=float32)
    """

    transform = "custom_vjp"

    @api_boundary
    def __init__(self, fun: Callable[P, R_co], nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self.rules: tuple[Fun, Fun] | None = None

    def defvjp(self, fwd: Callable[P, tuple[object, object]], bwd: Callable[..., Sequence[object]]) -> None:
        """Sets `fwd(*args) -> (result, residuals)` and `bwd(residuals, cotangent) -> tuple of cotangents of the arguments`.

        Args:
            fwd: (*args) -> (result, residuals).
            bwd: (residuals, cotangent) -> tuple of cotangents, one for each argument.
        """
        check_callable(fwd, "defvjp")
        check_callable(bwd, "defvjp")
        self.rules = fwd, bwd

    def _forward(
        self, fwd: Fun, fixed: Fixed, flat: FlatFunction, primals: Sequence[Any]
    ) -> tuple[list[Any], FlatTree]:
        """Outputs and residuals; sets `flat.out`."""
        where = f"the fwd rule of {name_of(self.fun)}"
        with activity(f"running {where}"):
            given = _merge(fixed, flat.arguments.build(_as_given(flat, primals))[0])
            fix = f"define it with the parameters of {name_of(self.fun)}."
            result = call_function(fwd, given, where=where, fix=fix)
        result = _check_pair(where, result, "return result, residuals.")
        return _outputs(flat, result[0]), FlatTree(result[1])

    def _backward(
        self,
        bwd: Fun,
        fixed: Fixed,
        flat: FlatFunction,
        residuals: Any,
        outputs: Sequence[TensorSpec],
        cts: Sequence[Any],
    ) -> list[Any]:
        """Returns cotangents of the argument leaves, zeros filled in; `cts` belong to the differentiable outputs."""
        given = iter(cts)
        filled = [next(given) if is_differentiable(spec) else zeros(spec) for spec in outputs]
        args = flat.arguments.build(flat.leaves)[0]
        where = f"the bwd rule of {name_of(self.fun)}"
        with activity(f"running {where}"):
            arguments = [*fixed.values(), residuals, flat.build_result(filled)]
            fix = f"define it as bwd({'*nondiff, ' if fixed else ''}residuals, cotangent)."
            result = call_function(bwd, arguments, where=where, fix=fix)
        if not isinstance(result, (tuple, list)) or len(result) != len(args):
            got = f"{len(result)} values" if isinstance(result, (tuple, list)) else f"a {type(result).__name__}"
            problem = f"it must return a tuple of {len(args)} cotangents, one for each argument, it returns {got}."
            advice = "return a tuple, with None for arguments that have no derivative."
            raise user_error(ArgumentTypeError, where, problem, fix=advice)
        found: list[Any] = []
        for i, (arg, ct) in enumerate(zip(args, result, strict=True)):
            leaves = FlatTree(arg).dynamic
            names = (f"cotangent {i}", f"argument {i}") if len(args) > 1 else ("the cotangent", "the argument")
            if ct is None:
                found += [zeros(argument_spec(x)) for x in leaves]
                continue
            tree.check_same_structure(where, names[0], ct, names[1], arg)
            for x, c in zip(leaves, FlatTree(ct).dynamic, strict=True):
                floats = is_differentiable(argument_spec(x))
                found.append(_fit(where, names[0], c, names[1], x) if floats else as_value(c))
        return found

    def _rule(self, fixed: Fixed, flat: FlatFunction) -> VjpRule:
        if self.rules is None:
            raise self._missing("defvjp")
        fwd, bwd = self.rules

        def forward(primals: Sequence[Any]) -> tuple[list[Any], list[Any], Pull]:
            outputs, kept = self._forward(fwd, fixed, flat, primals)
            specs, skeleton = [x.spec for x in outputs], kept.skeleton()

            def pull(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
                return self._backward(bwd, fixed, flat, skeleton.build(residuals), specs, cts)

            return outputs, kept.dynamic, pull

        return VjpRule(forward)


def _check_pair(where: str, result: Any, fix: str) -> Any:
    if not isinstance(result, tuple) or len(result) != 2:
        raise user_error(
            ArgumentTypeError, where, f"it must return a pair, it returns a {type(result).__name__}.", fix=fix
        )
    return result


def _outputs(flat: FlatFunction, result: Any) -> list[Any]:
    """Returns the leaves of a function's result, whose structure `flat` keeps."""
    flat.out = FlatTree(shapes_of(result))
    return [as_value(x) for x in FlatTree(result).dynamic]


def _as_given(flat: FlatFunction, primals: Sequence[Any]) -> list[Any]:
    """Returns the primals with the weakness of the arguments that they stand for, which the inputs of a graph do not have."""
    return [with_weakness(as_value(x), is_weak(leaf)) for x, leaf in zip(primals, flat.leaves, strict=True)]


def _fit(where: str, left_name: str, value: Any, right_name: str, right: Any) -> Value:
    """`value`, which must be like `right`; where one of them is weak, it takes the dtype of `right`."""
    left = as_wanted(value, right, where)
    right = spec_of(right)
    if (left.spec.shape, left.spec.dtype) != (right.shape, right.dtype):
        problem = f"{left_name} has another shape or dtype than {right_name}."
        operands = {left_name: left.spec, right_name: right}
        fix = f"return {left_name} with the shape and dtype of {right_name}."
        raise user_error(
            ShapeError if left.spec.shape != right.shape else DTypeError, where, problem, operands=operands, fix=fix
        )
    return left


# -- the rules of staged nodes -----------------------------------------------------------------------------------------


def _captured_error(where: str) -> UnsupportedError:
    problem = "the function captures a value that is being differentiated; its rule knows nothing of it."
    fix = "pass the value as an argument of the function, or nnc.stop_gradient(value) where no derivative is wanted."
    return user_error(UnsupportedError, where, problem, fix=fix)


def _check_captured(tangents: Tangents, args: int) -> None:
    if any(t is not None for t in tangents[args:]):
        raise _captured_error("custom derivative")


def _by_rule(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], rule: Rule, args: int
) -> tuple[list[Value], Tangents]:
    _check_captured(tangents, args)
    outputs, moved = rule(list(primals[:args]), list(tangents[:args]))
    return outputs, tuple(moved)


def _batch_node(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], graphs: tuple[Graph, ...], rule: Rule, args: int
) -> tuple[tuple[Value, ...], tuple[bool, ...]]:
    same = rule.along.same_outputs(batched, len(graphs[0].outputs))
    flags = rule.batched_arguments(batched, args)
    rows = [lead(size, x, b) if on else one_row(x, b) for x, b, on in zip(operands, batched, flags, strict=True)]
    params = {"rule": rule.batched(size, flags[:args], same), "args": args}
    command = control.custom_vjp if isinstance(rule, VjpRule) else control.custom_jvp
    return bind_for_rows(command, size, rows, flags, params, graphs[0], same)


derivative.set(control.custom_jvp, Derivative(push=_by_rule, linearize=_by_rule))
batch.set(control.custom_jvp, _batch_node)
derivative.set(control.custom_vjp, Derivative(push=_by_rule, linearize=_by_rule))
batch.set(control.custom_vjp, _batch_node)
