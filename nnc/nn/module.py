"""Models as values: a `Module` is a frozen dataclass and a pytree, so every transform takes it as an argument."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from nnc import tree
from nnc.base import dtypes
from nnc.base.html import Branch, show_tree
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.names import add_missing, names_without_missing
from nnc.errors.tracebacks import api_boundary, arguments_misfit, cut_traceback
from nnc.graph import spec_of
from nnc.typing import A

__all__ = ["Module", "field", "inference_mode"]

M = TypeVar("M", bound="Module")
_LINE = 100
_OPEN = "_is_being_initialised"


def field(*, static: bool = False, state: bool = False, **kwargs: Any) -> Any:
    """Returns a dataclass field; `static=True` makes it a setting: part of the model's structure, never differentiated or
    traced.

    Strings, functions and Python numbers are settings without being told. `state=True` marks arrays that a call renews and no
    optimizer trains, such as running averages: see `nnc.nn.is_stateful`. The other arguments are those of dataclasses.field.

    Args:
        static: part of the structure: hashable, never differentiated or traced.
        state: changes from call to call, such as running statistics.
        **kwargs: the arguments of `dataclasses.field`.

    Example:
        >>> class Scale(nnc.nn.Module):
        ...     factor: nnc.Array
        ...     axis: int = nnc.nn.field(default=-1, static=True)
        >>> nnc.tree.leaves(Scale(nnp.ones(2)))
        [Array([1., 1.], dtype=float32)]
    """
    marks = {name: True for name, is_set in (("static", static), ("state", state)) if is_set}
    return dataclasses.field(metadata={**kwargs.pop("metadata", {}), **marks}, **kwargs)


@dataclass_transform(eq_default=False, field_specifiers=(dataclasses.field, field))
class Module:
    """The base of models: subclasses are frozen dataclasses and pytrees of their array fields, by inheriting.

    Fields are declared with annotations. Without an `__init__` of its own a module is built from its fields, in their order;
    one of its own may assign to `self` until it returns. Computations are ordinary methods, `__call__` by custom.

    Example:
        >>> class Scale(nnc.nn.Module):
        ...     factor: nnc.Array
        ...     power: int = 1
        ...     def __call__(self, x):
        ...         return self.factor * x**self.power
        >>> model = Scale(nnp.asarray([1.0, 2.0]), power=2)
        >>> model
        Scale(factor=float32[2], power=2)
        >>> nnc.grad(lambda model: model(nnp.asarray([3.0, 4.0])).sum())(model).factor
        Array([ 9., 16.], dtype=float32)
    """

    _has_own_init: ClassVar[bool] = False

    def __init_subclass__(cls, *, init: bool = True, **kwargs: Any) -> None:
        # init=False tells type checkers that the class inherits an __init__
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("__init__")
        if own is not None:
            cls._has_own_init = True
            setattr(cls, "__init__", _assigning(own))  # noqa: B010  (mypy: methods are not assigned to)
        dataclasses.dataclass(frozen=True, eq=False, repr=False, init=not cls._has_own_init)(cls)
        if not cls._has_own_init:
            setattr(cls, "__init__", spelled(cls.__init__))  # noqa: B010  (as above)
        if cls.__module__.startswith("nnc.") and "__call__" in cls.__dict__:
            setattr(cls, "__call__", api_boundary(cls.__dict__["__call__"]))  # noqa: B010  (as above)
        if any("forward" in base.__dict__ for base in cls.__mro__ if base is not Module):
            calls = [base.__dict__["__call__"] for base in cls.__mro__ if "__call__" in base.__dict__]
            call = next((call for call in calls if call is not _refuse_call), _refuse_call)
            if calls[:1] != [call]:
                setattr(cls, "__call__", call)  # noqa: B010  (as above)
        # the base's __setattr__ lets __init__ assign; without the generated ones the decorator may also be written out
        for name in ("__setattr__", "__delattr__"):
            delattr(cls, name)
        tree.register_dataclass(cls, static_scalars=True)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            if _OPEN not in self.__dict__:
                problem = f"{name} cannot be assigned: modules are immutable."
                fix = f"make a changed copy with model.replace({name}=...)."
                raise user_error(ArgumentTypeError, type(self).__name__, problem, fix=fix)
            if name not in _field_names(type(self)):
                problem = f"{name} is assigned in __init__, but is no field."
                fix = f"declare it in the class body: `{name}: nnc.Array`, or another type."
                raise user_error(ArgumentTypeError, type(self).__name__, problem, fix=fix)
            object.__setattr__(self, name, value)
        except BaseException as error:
            cut_traceback(error)
            raise

    @api_boundary
    def __delattr__(self, name: str) -> None:
        problem = f"{name} cannot be deleted: modules are immutable."
        fix = "make a changed copy with model.replace(...)."
        raise user_error(ArgumentTypeError, type(self).__name__, problem, fix=fix)

    @api_boundary
    def replace(self: M, **changes: Any) -> M:
        """Returns a copy with some fields changed; `__init__` does not run.

        Args:
            **changes: fields by name, with their values.

        Raises:
            ArgumentTypeError: there is no such field.
        """
        names = _field_names(type(self))
        for name in changes:
            if name not in names:
                problem = f"there is no field {name!r}."
                fix = f"the fields are {', '.join(names)}."
                raise user_error(ArgumentTypeError, f"{type(self).__name__}.replace", problem, fix=fix)
        return _copy(self, changes)

    def __repr__(self) -> str:
        return _text(self, "")

    def __dir__(self) -> list[str]:
        return names_without_missing(type(self), super().__dir__())

    def _repr_html_(self) -> str:
        return show_tree(_tree("", self, False)[0])


@api_boundary
def _refuse_call(self: Module, *args: Any, **kwargs: Any) -> Any:
    """Returns the `__call__` of classes that have PyTorch's `forward` instead."""
    problem = "it cannot be called: it has a method forward, but no __call__."
    fix = "rename forward to __call__; hooks do not stand between the two."
    raise user_error(ArgumentTypeError, type(self).__name__, problem, fix=fix)


add_missing(Module, "nnc.nn.Module")


def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(item.name for item in dataclasses.fields(cls))


def _copy(module: M, changes: Mapping[str, Any]) -> M:
    return copy_as(type(module), module, **changes)


def copy_as(cls: type[M], module: Module, **changes: Any) -> M:
    """Returns a module of another class with the fields of a module, some of them changed."""
    twin: M = object.__new__(cls)
    for name, value in {**module.__dict__, **changes}.items():
        object.__setattr__(twin, name, value)
    return twin


def _assigning(init: Callable[..., None]) -> Callable[..., None]:
    """`init` with the right to assign fields until the outermost `__init__` returns."""

    def call_init(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            init(module, *args, **kwargs)
        except TypeError as error:
            misfit = arguments_misfit(error, init, type(module).__name__, (module, *args), kwargs)
            if misfit is None:
                raise
            raise misfit from None

    @functools.wraps(init)
    @api_boundary
    def assigning(self: Any, *args: Any, **kwargs: Any) -> None:
        if _OPEN in self.__dict__:
            call_init(self, args, kwargs)
            return
        object.__setattr__(self, _OPEN, True)
        try:
            call_init(self, args, kwargs)
        finally:
            object.__delattr__(self, _OPEN)
        missing = [name for name in _field_names(type(self)) if not hasattr(self, name)]
        if missing:
            problem = f"__init__ leaves {', '.join(missing)} without a value."
            fix = "assign every field in __init__, None where there is nothing."
            raise user_error(ArgumentTypeError, type(self).__name__, problem, fix=fix)

    return assigning


def modify(module: Any, change: Callable[[Module], Mapping[str, Any]]) -> Any:
    """Returns a copy of a tree of modules in which each module has the fields changed that `change(module)` gives."""
    if isinstance(module, Module):
        inner = {name: modify(value, change) for name, value in module.__dict__.items()}
        return _copy(module, {**inner, **change(module)})
    if not is_container(module):
        return module
    if isinstance(module, dict):
        return {name: modify(part, change) for name, part in module.items()}
    return type(module)(modify(part, change) for part in module)


def is_container(value: Any) -> bool:
    """Whether `value` is a list, tuple or dict, in which modules may stand."""
    return type(value) in (list, tuple, dict)


@spelled
def inference_mode(model: A, value: bool = True) -> A:
    """Returns the model with the field `inference` of every module that has one set: dropout off, running statistics used.

    Args:
        model: a module, or a pytree of modules.
        value: the value of the field `inference`.

    Example:
        >>> inference_mode(nnc.nn.Dropout(0.5))(nnp.ones(2))
        Array([1., 1.], dtype=float32)
    """
    return modify(model, lambda module: {"inference": value} if "inference" in _field_names(type(module)) else {})


# -- text --------------------------------------------------------------------------------------------------------------


def _text(value: Any, indent: str) -> str:
    if isinstance(value, Module):
        parts = [(f"{name}=", getattr(value, name)) for name in _shown_fields(value)]
        return _bracketed(f"{type(value).__name__}(", parts, ")", indent)
    if type(value) in (list, tuple):
        left, right = ("[", "]") if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        return _bracketed(left, [("", part) for part in value], right, indent)
    if isinstance(value, dict):
        return _bracketed("{", [(f"{name!r}: ", part) for name, part in value.items()], "}", indent)
    if hasattr(value, "spec") or isinstance(value, np.ndarray):
        return str(spec_of(value))
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    return repr(value)


def _shown_fields(module: Module) -> list[str]:
    """Returns the fields that a module's text shows: all but the settings that have the default of its own `__init__`."""
    cls: type = type(module)
    own = inspect.signature(cls.__init__).parameters if module._has_own_init else {}  # type: ignore[misc]
    names = [item.name for item in dataclasses.fields(cls) if item.repr and hasattr(module, item.name)]
    return [name for name in names if name not in own or not _is_default(getattr(module, name), own[name].default)]


def _is_default(value: Any, default: Any) -> bool:
    """Whether a setting is the default, or the tuple that the default stands for."""
    if isinstance(value, tuple) and value and not isinstance(default, tuple):
        return all(_is_default(part, default) for part in value)
    return value is default or (
        type(value) is type(default) and isinstance(value, (int, float, str)) and value == default
    )


def _tree(name: str, value: Any, is_state: bool) -> tuple[Branch, int]:
    """Returns the branch of a part of a model, and the number of elements of its parameters."""
    label = f"{name}: " if name else ""
    if isinstance(value, Module):
        cls: type = type(value)
        marks = {item.name: bool(item.metadata.get("state")) for item in dataclasses.fields(cls)}
        parts = [_tree(field, getattr(value, field), is_state or marks[field]) for field in _shown_fields(value)]
        title = type(value).__name__
    elif is_container(value) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        parts = [_tree(str(key), part, is_state) for key, part in items]
        title = f"{type(value).__name__} of {len(value)}"
    else:
        is_array = hasattr(value, "spec") or isinstance(value, np.ndarray)
        is_parameter = is_array and not is_state and dtypes.is_inexact(value.dtype)
        text = f"{label}{_text(value, '')}{', state' if is_array and is_state else ''}"
        return Branch(text), int(value.size) if is_parameter else 0
    count = sum(n for _, n in parts)
    noun = "parameter" if count == 1 else "parameters"
    return Branch(f"{label}{title}, {count:,} {noun}", [branch for branch, _ in parts]), count


def _bracketed(left: str, parts: list[tuple[str, Any]], right: str, indent: str) -> str:
    inner = indent + "  "
    texts = [name + _text(part, inner) for name, part in parts]
    line = f"{left}{', '.join(texts)}{right}"
    if len(line) + len(indent) <= _LINE and "\n" not in line:
        return line
    return f"{left}\n{''.join(_lines(texts, inner))}{indent}{right.lstrip(',')}"


def _lines(texts: list[str], indent: str) -> Iterator[str]:
    return (f"{indent}{text},\n" for text in texts)
