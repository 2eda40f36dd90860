"""Keyword arguments that a function does not have: the error names the spelling that nnc uses. Also checks arguments that must
be booleans.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from nnc.base.context import LOCATORS, set_context, where_arguments_are
from nnc.device import check_program, find_device, interpreter_of
from nnc.errors import ArgumentTypeError, NncError, user_error
from nnc.errors.tracebacks import cut_traceback, leave

F = TypeVar("F", bound=Callable[..., Any])

# a foreign spelling -> the names of nnc that may be meant, and how the argument is written
SPELLINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "dim": (("axis", "axes"), "{}=..."),
    "dims": (("axis", "axes"), "{}=..."),
    "axes": (("axis",), "{}=..."),
    "axis": (("axes",), "{}=..."),
    "keepdim": (("keepdims",), "{}=..."),
    "keep_dims": (("keepdims",), "{}=..."),
    "unbiased": (("ddof", "correction"), "{}=1 (or 0)"),
    "a_min": (("min",), "{}=..."),
    "a_max": (("max",), "{}=..."),
    "lr": (("learning_rate",), "{}=..."),
    "betas": (("b1",), "{}=..., b2=..."),
    "beta1": (("b1",), "{}=..."),
    "beta2": (("b2",), "{}=..."),
    "epsilon": (("eps",), "{}=..."),
    "alpha": (("decay",), "{}=..."),
    "gamma": (("decay_rate",), "{}=..."),
    "weight_decay": (
        ("b1", "decay", "initial_accumulator_value", "memory_size"),
        "chain(add_decayed_weights(...), ...) or adamw(..., weight_decay=...)",
    ),
    "history_size": (("memory_size",), "{}=..."),
    "line_search_fn": (("linesearch",), "{}=..."),
    "batch_size": (("batch",), "{}=..."),
    "shuffle": (("key",), "{}=nnc.random.key(0)"),
    "desc": (("description",), "{}=..."),
    "rcond": (("rtol",), "{}=..."),
    "tol": (("rtol",), "{}=..."),
    "upper": (("lower",), "{}=not upper"),
    "unitriangular": (("unit_diagonal",), "{}=..."),
    "in_dims": (("in_axes",), "{}=..."),
    "out_dims": (("out_axes",), "{}=..."),
    "newshape": (("shape",), "{}=..."),
    "size": (("shape", "output_size"), "{}=..."),
    "fill": (("fill_value",), "{}=..."),
    "kernel_size": (("window", "kernel"), "{}=..."),
    "num_features": (("features",), "{}=..."),
    "in_channels": (("in_features",), "{}=..."),
    "out_channels": (("out_features",), "{}=..."),
    "num_channels": (("features",), "{}=..."),
    "input_size": (("in_features",), "{}=..."),
    "hidden_size": (("hidden_features",), "{}=..."),
    "embed_dim": (("features",), "{}=..."),
    "d_model": (("features",), "{}=..."),
    "nhead": (("num_heads",), "{}=..."),
    "dim_feedforward": (("hidden_features",), "{}=..."),
    "num_groups": (("groups",), "{}=..."),
    "dropout": (("dropout_rate", "rate"), "{}=..."),
    "embedding_dim": (("features",), "{}=..."),
    "normalized_shape": (("features", "axis"), "{}=..."),
    "elementwise_affine": (("use_scale",), "{}=..."),
    "affine": (("use_scale",), "{}=..."),
    "bias": (("use_bias", "b"), "{}=..."),
    "weight": (("w", "scale", "weights", "negative_slope", "table"), "{}=..."),
    "input": (("x", "logits", "predictions", "log_probabilities", "log_predictions"), "{}=..."),
    "target": (("labels", "targets"), "{}=..."),
    "scale_factor": (("scale",), "{}=..."),
    "mode": (("method",), "{}=..."),
    "upscale_factor": (("factor",), "{}=..."),
    "downscale_factor": (("factor",), "{}=..."),
    "norm_type": (("degree",), "{}=..."),
    "pos_weight": (("positive_weights",), "{}=..."),
    "log_target": (("log_targets",), "{}=..."),
    "blank_id": (("blank",), "{}=..."),
    "input_lengths": (("logit_lengths",), "{}=..."),
    "target_lengths": (("label_lengths",), "{}=..."),
    "padding_idx": (("padding_index",), "{}=..."),
    "running_mean": (("mean",), "{}=..."),
    "running_var": (("variance",), "{}=..."),
    "dropout_p": (("dropout_rate",), "{}=..."),
    "anchor": (("anchors",), "{}=..."),
    "positive": (("positives",), "{}=..."),
    "negative": (("negatives",), "{}=..."),
    "var": (("variances",), "{}=..."),
    "attn_mask": (("mask",), "{}=..."),
    "data_format": (("layout",), "{}=..."),
    "p": (("rate", "norm_degree"), "{}=..."),
    "training": (("deterministic", "inference"), "{}=not training"),
}

_FLAGS = ("bool", "bool | None")  # annotations, which are not evaluated
_NUMPY_DEFAULTS = {"out": None, "dtype": None, "order": "C"}  # passed on by np.sum(x), which calls x.sum(...)


def spelled(function: F) -> F:
    """Checks the keyword arguments of `function`: an unknown one raises an error with the right spelling, as does a flag that
    is no bool. Decorators that are made of this one need not be combined with it.

    If the function has an argument `device`, its result is made on that device.

    Raises:
        ArgumentTypeError: (in calls) there is no such argument, or one that is annotated as a bool is something else.

    Example:
        >>> @spelled
        ... def total(x, *, axis=None):
        ...     return axis
        >>> total([1], axis=0)
        0
        >>> total([1], dim=0)
        Traceback (most recent call last):
        nnc.errors.ArgumentTypeError: total: it has no argument 'dim'...
        Fix: write axis=... instead.
    """
    if vars(function).get("is_spelled"):
        return function
    plain: Any = inspect.unwrap(function)
    code = plain.__code__  # inspect.signature on hundreds of functions would slow the import
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    placed = list(code.co_varnames[: code.co_posonlyargcount])
    names = [name for name in code.co_varnames[code.co_posonlyargcount : last] if name != "self"]
    known = frozenset(names)
    takes_any = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    has_device = "device" in code.co_varnames[first:last]
    draws = "key" in code.co_varnames[first:last] and "key" not in (plain.__kwdefaults__ or {})
    flags = [(i, x) for i, x in enumerate(code.co_varnames[:last]) if plain.__annotations__.get(x) in _FLAGS]

    def where(args: tuple[Any, ...]) -> str:
        return type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            if kwargs and not takes_any and not kwargs.keys() <= known:
                kwargs = {key: x for key, x in kwargs.items() if key in known or x is not _NUMPY_DEFAULTS.get(key, ...)}
            if kwargs and not takes_any and not kwargs.keys() <= known:
                raise unknown_argument(where(args), next(key for key in kwargs if key not in known), names, placed)
            if draws and "key" not in kwargs:
                fix = "pass key=nnc.random.key(0)."
                raise user_error(ArgumentTypeError, where(args), "the argument 'key' is missing.", fix=fix)
            for place, name in flags:
                value = args[place] if place < len(args) and place < first else kwargs.get(name, False)
                if type(value) is not bool:
                    check_flag(value, where(args), name)
            if has_device and kwargs.get("device") is not None:
                return _on_device(function, args, kwargs)
            if LOCATORS:
                with where_arguments_are(args, kwargs):
                    return function(*args, **kwargs)
            return function(*args, **kwargs)
        except BaseException as error:
            other = leave(error, function, where(args), args, kwargs)
            if other is None:
                raise
            try:
                raise other from None
            except NncError as worded:
                cut_traceback(worded)
                raise

    vars(checked)["is_spelled"] = True
    return cast(F, checked)


def _on_device(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Returns the array that a function returns, made on the device that its argument `device` names."""
    device = find_device(kwargs["device"], function.__name__)
    check_program(device.name, function.__name__)
    with set_context(device=interpreter_of(device)):
        result = function(*args, **kwargs)
    return result.to_device(device.name) if hasattr(result, "to_device") else result


def check_flag(value: Any, where: str, name: str) -> None:
    """Raises unless `value` is a single truth value: a bool, an integer, a 0-d array, or None for no.

    Raises:
        ArgumentTypeError: the value is something else.
    """
    shape = getattr(value, "shape", None)
    if (shape is None and (value is None or isinstance(value, int))) or shape == ():
        return
    what = f"{value!r} ({type(value).__name__})" if shape is None else f"an array of shape {tuple(shape)}"
    raise user_error(
        ArgumentTypeError, where, f"{name} is {what}, not a bool.", fix=f"pass {name}=True or {name}=False."
    )


def unknown_argument(where: str, name: str, known: list[str], placed: Sequence[str] = ()) -> ArgumentTypeError:
    """Returns the error for an argument `name` of a function whose arguments are `known`; those `placed` have no name for
    callers.
    """
    meant, form = SPELLINGS.get(name, ((), ""))
    there = [word for word in meant if word in known]
    if there:
        fix = f"write {form.format(there[0])} instead."
    elif name == "out":
        fix = "use the value that is returned: nnc arrays are immutable."
    else:
        by_name = f"its arguments are {', '.join(known)}" if known else "it has no arguments with names"
        by_place = f"; pass {', '.join(placed)} by place" if placed else ""
        fix = f"{by_name}{by_place}."
    return user_error(ArgumentTypeError, where, f"it has no argument {name!r}.", fix=fix)
