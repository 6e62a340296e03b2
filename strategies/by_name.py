"""Parts of a strategy by name: compressors, error feedback, server optimisers."""

import pkgutil
from collections.abc import Mapping
from typing import Any, TypeVar

from strategies.argument_types import check_names, check_types

Part = TypeVar("Part")


def read_part(key: str, given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a part as a config gives it.

    Args:
        key: The config's key, for the error.
        given: A name, or a table with "name" and arguments, whose hyphens are underscores.

    Raises:
        ValueError: There is no name.
    """
    if isinstance(given, str):
        return given, {}
    table = dict(given) if isinstance(given, Mapping) else {}
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(f'{key} = {given!r}: give a name, or a table such as {{name = "..."}}')
    return name, {argument.replace("-", "_"): value for argument, value in table.items()}


def build_part(
    kind: type[Part],
    what: str,
    built_in: Mapping[str, str],
    name: str,
    arguments: Mapping[str, Any] | None = None,
) -> Part:
    """Return the part of that name.

    Args:
        kind: The class that it must be a subclass of.
        what: What such a part is called, for errors.
        built_in: "module:Class" by name.
        name: One of these, or "package.module:Class" for any other that can be imported.
        arguments: What the class is called with.

    Raises:
        ValueError: An unknown name, not a subclass, or arguments that it does not take or of
            another type.
        ImportError: There is no such module.
        AttributeError: The module has no such attribute.
    """
    path = built_in.get(name, name)
    if ":" not in path:
        raise ValueError(
            f"{what} {name!r}: known are {', '.join(sorted(built_in))}; or module:Class"
        )
    cls = pkgutil.resolve_name(path)
    if not (isinstance(cls, type) and issubclass(cls, kind)):
        raise ValueError(f"{what} {name!r} is not a subclass of {kind.__name__}")
    found = f"{what} {name!r}"
    check_names(found, cls, arguments or {})
    check_types(cls, arguments or {})
    try:
        return cls(**(arguments or {}))
    except TypeError as error:
        raise ValueError(f"{found}: {error}") from error
