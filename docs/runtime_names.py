"""Gives griffe the public names whose docstrings are made when nnc is imported: functions of tables, second names, constants."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

from docs.reference import documented, entry_of, modules

KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
}
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class RuntimeNames(griffe.Extension):
    """Replaces entries that have no docstring in the source by entries made of the objects themselves."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each object: names the section of examples as griffe does."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub("Examples:", obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called by griffe when the package is loaded."""
        for module in modules().values():
            for name in documented(module):
                path = entry_of(module, name).partition(".")[2]
                if not has_docstring(pkg, path):
                    parent = path.rpartition(".")[0]
                    (pkg[parent] if parent else pkg).set_member(name, made_of(name, getattr(module, name)))


def has_docstring(pkg: griffe.Module, path: str) -> bool:
    """Whether griffe finds a function, class or value of that name and its docstring in the source."""
    try:
        found = pkg[path]
        target = found.final_target if found.is_alias else found
        return target.has_docstring and not target.is_module
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return False


def made_of(name: str, value: Any) -> griffe.Object:
    """An entry of the reference, made of an object."""
    text = griffe.Docstring(EXAMPLE.sub("Examples:", text_of(value)), parser="google")
    if inspect.isroutine(value):
        return griffe.Function(name, parameters=parameters_of(value), docstring=text)
    return griffe.Attribute(name, docstring=text)


def text_of(value: Any) -> str:
    """The docstring of an object; of a plain value its representation."""
    plain = value is None or isinstance(value, int | float | str | tuple | dict)
    return f"The value `{value!r:.60}`." if plain else inspect.getdoc(value) or ""


def parameters_of(function: Any) -> griffe.Parameters:
    """The parameters of a function."""
    return griffe.Parameters(
        *(
            griffe.Parameter(
                each.name,
                kind=KINDS[each.kind],
                default=None if each.default is each.empty else repr(each.default),
                annotation=None if each.annotation is each.empty else str(each.annotation),
            )
            for each in inspect.signature(function).parameters.values()
        )
    )
