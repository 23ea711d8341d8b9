"""Whether the values of a configuration are of the types that the class they are for says it takes."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pertbase.errors import InputError, unknown_name
from pertbase.runs._located import located

__all__ = ["check_parameters"]

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def check_parameters(config: Mapping[str, Any], where: str) -> None:
    """Raise where a value cannot be what its parameter is annotated with; classes within classes are looked at too.

    Numbers, texts, truth values, literals and unions of these are judged; whatever else an annotation says is left to
    the class. A parameter's own default is always right, whatever its annotation says.

    Parameters
    ----------
    config
        With the class under ``_target_``.
    where
        The part's key, which errors begin with.

    Raises
    ------
    InputError
        Naming key and value.
    """
    for key, value in config.items():
        if isinstance(value, Mapping) and "_target_" in value:
            check_parameters(value, f"{where}.{key}")
    known = _parameters(_located(str(config["_target_"])))
    for key, value in config.items():
        if str(key) not in known:
            continue
        parameter, owner = known[str(key)]
        wanted = _understood(parameter.annotation, owner)
        # 1 is true and 1.0 is 1: a default is itself alone.
        default = type(value) is type(parameter.default) and value == parameter.default
        if not default and not _fits(value, wanted):
            raise _refused(f"{where}.{key}", value, wanted)


def _located(target: str) -> Any:
    """Return the class or function of a ``_target_``; None where there is none, which who makes it says better."""
    try:
        return located(target, "_target_")
    except InputError:
        return None


def _parameters(made: Any) -> dict[str, tuple[inspect.Parameter, Any]]:
    """Return what a class or function takes that is annotated, with the function that says so.

    Where a class hands on whatever else it is given, what the classes it derives from take.
    """
    found: dict[str, tuple[inspect.Parameter, Any]] = {}
    makers = [vars(one)["__init__"] for one in made.__mro__ if "__init__" in vars(one)] if inspect.isclass(made) else []
    for function in makers or [made]:
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            break
        for name, parameter in parameters.items():
            if parameter.annotation is not parameter.empty:
                found.setdefault(name, (parameter, function))
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
            break
    return found


def _understood(annotation: Any, owner: Any) -> Any:
    """Return what an annotation means; ``Any`` where it names what is there for type checkers alone."""
    module = inspect.getmodule(owner)
    holder = types.SimpleNamespace(__annotations__={"value": annotation})
    try:
        return get_type_hints(holder, globalns=vars(module) if module else {})["value"]
    except (NameError, TypeError, SyntaxError):
        return Any


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(value, Mapping) and "_target_" in value:
        return True
    if get_origin(wanted) in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(wanted))
    if get_origin(wanted) is Literal:
        return value in get_args(wanted)
    if wanted is types.NoneType:
        return value is None
    if wanted is bool or wanted is str:
        return isinstance(value, wanted)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted is int:
        # YAML reads 1e6 as a number with a point.
        return number and (isinstance(value, int) or (math.isfinite(value) and value == int(value)))
    return number if wanted is float else True


def _refused(key: str, value: Any, wanted: Any) -> InputError:
    options = get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)
    words = [word for option in options for word in _said(option)]
    literal = next((get_args(option) for option in options if get_origin(option) is Literal), None)
    if literal is not None and isinstance(value, str):
        return unknown_name(key, value, map(str, literal))
    return InputError(f"is not {' or '.join(words)}", key=key, value=value)


def _said(option: Any) -> list[str]:
    if option is types.NoneType:
        return ["null"]
    if get_origin(option) is Literal:
        return [str(one) for one in get_args(option)]
    return [_WORDS.get(option, str(option))]
