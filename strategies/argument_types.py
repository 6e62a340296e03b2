"""The names and types of the arguments that a run's config gives to a strategy or a part of one."""

import inspect
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError


def check_names(
    what: str, cls: type, arguments: Iterable[str], refused: Collection[str] = ()
) -> None:
    """Check that a class takes the arguments. The error has hyphens in names, as configs have.

    Args:
        what: What the class is called, for the error.
        cls: The class.
        arguments: The names given.
        refused: Names that must not be given although the class takes them.

    Raises:
        ValueError: One of the names is unknown or refused.
    """
    parameters = inspect.signature(cls).parameters.values()
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    accepted = [
        one.name
        for one in parameters
        if one.kind is not one.VAR_KEYWORD and one.name not in refused
    ]
    unknown = [name for name in arguments if name in refused or not (name in accepted or takes_any)]
    if unknown:
        takes = _listed(accepted) or "no arguments"
        raise ValueError(f"{what} does not take {_listed(unknown)}; it takes: {takes}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name.replace("_", "-") for name in names)


def check_types(cls: type, arguments: Mapping[str, Any]) -> None:
    """Check the arguments against the type hints of the class's constructor.

    Arguments without a hint are not checked, nor are those whose hint is no type of a config.

    Args:
        cls: The class.
        arguments: Values as TOML has them. Others, such as a wrapped strategy, are not checked.

    Raises:
        ValueError: A value is of another type.
    """
    hints = _hints(cls)
    for name, value in arguments.items():
        if name in hints and not _fits(value, hints[name]):
            kind = inspect.formatannotation(hints[name])
            raise ValueError(f"{cls.__name__}: {_listed([name])} = {value!r} is not of type {kind}")


def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls.__init__)  # type: ignore[misc]
    except Exception:  # a hint of another package's that names what is imported for types only
        return {}


def _fits(value: object, hint: Any) -> bool:
    try:
        text = json.dumps(value)
        adapter = TypeAdapter(hint)
    except Exception:  # not a value of a config, or not a type that pydantic knows
        return True
    try:
        # As JSON, strictly: a list is a tuple, too, but "1" and true are no numbers.
        adapter.validate_json(text, strict=True)
    except ValidationError:
        return False
    return True
