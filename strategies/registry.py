"""Classes by name, and objects made of them with a config's arguments.

Strategies, compressors, error feedback and server optimisers each have a `Registry`.
"""

import inspect
import json
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Annotated, Any, Generic, Literal, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

Kind = TypeVar("Kind")

# Hints for arguments, whose bounds `make` checks.
Share = Annotated[float, Field(ge=1e-9, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
FeedbackDecay = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Weights = Literal["samples", "uniform"]
Scope = Literal["tensor", "model"]
# A part of a strategy: a name, or a table with "name" and arguments, whose hyphens are underscores.
Part = str | Mapping[str, Any]


@dataclass(frozen=True)
class Registry(Generic[Kind]):
    """The classes of one kind that have a name.

    Attributes:
        kind: Their base class.
        what: What errors call such a class.
        built_in: "module:Class" by name.
        group: The group of entry points by which installed packages add names; empty for none.
    """

    kind: type[Kind]
    what: str
    built_in: Mapping[str, str] = field(default_factory=dict)
    group: str = ""

    def names(self) -> list[str]:
        """Return the names, sorted; a package cannot replace a built-in name."""
        return sorted({*self.built_in, *self._installed()})

    def load(self, name: str) -> type[Kind]:
        """Return the class of that name.

        Args:
            name: One of `names`, or "package.module:Class" for any other class that can be
                imported.

        Raises:
            ValueError: An unknown name, or not a class of this kind.
            ImportError: There is no such module.
            AttributeError: The module has no such attribute.
        """
        path = self.built_in.get(name, name)
        if ":" not in path:
            path = self._installed().get(name, name)
        if ":" not in path:
            known = ", ".join(self.names())
            raise ValueError(f"{name!r} is no {self.what}; known: {known}; or package.module:Class")
        found = pkgutil.resolve_name(path)
        if not (inspect.isclass(found) and issubclass(found, self.kind)):
            raise ValueError(f"{path!r} is not a subclass of {self.kind.__qualname__}")
        return found

    def build(self, name: str, arguments: Mapping[str, Any] | None = None) -> Kind:
        """Return an object of the class of that name.

        Raises:
            ValueError, ImportError, AttributeError: As for `load` and `make`.
        """
        return make(self.load(name), arguments or {})

    def _installed(self) -> dict[str, str]:
        points = entry_points(group=self.group) if self.group else ()
        return {point.name: point.value for point in points}


def read_part(key: str, given: Part) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a part, given by name or as a table, of an argument."""
    if isinstance(given, str):
        return given, {}
    table = dict(given) if isinstance(given, Mapping) else {}
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(f'{key} = {given!r}: give a name, or a table such as {{name = "..."}}')
    return name, {argument.replace("-", "_"): value for argument, value in table.items()}


def parameters_of(cls: type) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class's constructor.

    `inspect.signature` of a subclass of a pydantic dataclass has the parameters of the base,
    whatever constructor the subclass has.
    """
    owner = _owner(cls)
    if "__signature__" not in vars(owner):
        parameters = inspect.signature(vars(owner)["__init__"]).parameters
        return dict(list(parameters.items())[1:])
    return inspect.signature(owner).parameters


def check_call(cls: type, args: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Check that a class can be called with these arguments.

    Raises:
        ValueError: An argument is unknown, or must have its name; the line names what is meant.
    """
    parameters = parameters_of(cls)
    try:
        inspect.Signature(list(parameters.values())).bind(*args, **options)
    except TypeError as error:
        own = vars(cls).get("__annotations__", {})
        names = sorted(parameters, key=lambda name: name not in own)  # its own first
        numbers = [name for name in names if isinstance(parameters[name].default, float)]
        unknown = next((name for name in options if name not in parameters), "")
        meant = [f"{name}={value!r}" for name, value in zip(numbers, args, strict=False)]
        meant = meant or get_close_matches(unknown, names) or names
        raise ValueError(f"{cls.__name__}: {error}; give {', '.join(meant)}") from None


def _owner(cls: type) -> type:
    """Return the class itself, or the base whose constructor it has."""
    return next(base for base in cls.__mro__ if "__init__" in vars(base))


def make(
    cls: type[Kind], arguments: Mapping[str, Any], fixed: Mapping[str, Any] | None = None
) -> Kind:
    """Return an object of the class, whose hints give the types and bounds of its arguments.

    Args:
        cls: The class.
        arguments: By name; a whole number becomes a float if the hint says so. A hint that pydantic
            does not know is not checked.
        fixed: Those of its arguments that a config must not set.

    Raises:
        ValueError: An argument is unknown, missing, of another type, out of its bounds, or refused
            by the class. The line names arguments with hyphens, as configs do.
    """
    fixed, parameters = fixed or {}, parameters_of(cls)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    names = [
        name
        for name, parameter in parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD and name not in fixed
    ]
    unknown = [name for name in arguments if name in fixed or not (name in names or takes_any)]
    if unknown:
        takes = _kebab(*names) or "no arguments"
        raise ValueError(f"{cls.__name__} does not take {_kebab(*unknown)}; it takes: {takes}")
    try:
        owner = _owner(cls)
        source = owner if "__dataclass_fields__" in vars(owner) else vars(owner)["__init__"]
        hints = get_type_hints(source, include_extras=True)
    except Exception:  # a hint in another package that names what is imported for types only
        hints = {}
    given = dict(arguments)
    for name in given.keys() & hints:
        try:
            settings = ConfigDict(arbitrary_types_allowed=True)
            adapter: TypeAdapter[Any] = TypeAdapter(hints[name], config=settings)
        except Exception:  # noqa: S112 - not a type of a config
            continue
        try:
            given[name] = _validated(adapter, given[name])
        except ValidationError as error:
            value, text = given[name], error.errors()[0]["msg"].removeprefix("Input ")
            raise ValueError(f"{cls.__name__}: {_kebab(name)} = {value!r}: {text}") from None
    fixed = {name: value for name, value in fixed.items() if name in parameters}
    try:
        return cls(**fixed, **given)
    except ValidationError as error:  # a pydantic dataclass refuses its arguments together
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {error}") from error


def _validated(adapter: TypeAdapter[Any], value: object) -> Any:
    """Return the value in the hint's type; lists may stand for tuples, as in JSON."""
    try:
        return adapter.validate_python(value, strict=True)
    except ValidationError:
        if not isinstance(value, list | str):
            raise
        return adapter.validate_json(json.dumps(value), strict=True)


def _kebab(*names: str) -> str:
    return ", ".join(name.replace("_", "-") for name in names)
