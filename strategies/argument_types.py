"""The types of the arguments that a run's config gives to a strategy."""

import inspect
import json
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError


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
            raise ValueError(f"{cls.__name__}: {name} = {value!r} is not of type {kind}")


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
