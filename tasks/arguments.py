"""Arguments as text: the inside of a TOML inline table, such as "eta = 0.01, name = 'x'"."""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import PlainSerializer, PlainValidator


class Arguments(str):
    """The text of arguments, parsed once.

    Attributes:
        values: The values by Python name, which has "_" for each "-" of the text.

    Raises:
        ValueError: It is not TOML, or an argument is given twice, with hyphens and underscores.
    """

    values: dict[str, Any]

    def __new__(cls, text: str = "") -> Self:
        """Parse the text."""
        try:
            table: dict[str, Any] = tomllib.loads(f"arguments = {{{text}}}")["arguments"]
        except tomllib.TOMLDecodeError as error:
            example = "write TOML, a comma between two arguments, as in: eta = 0.01, name = 'x'"
            raise ValueError(f"{example} ({error})") from None
        new = super().__new__(cls, text)
        new.values = {name.replace("-", "_"): value for name, value in table.items()}
        if len(new.values) < len(table):
            raise ValueError("an argument is given twice, with hyphens and underscores")
        return new

    @classmethod
    def of(cls, given: object) -> Self:
        """Return the arguments in a text or a table, as a file of settings may have.

        Raises:
            ValueError: As for the class, it is neither, or a value cannot be written in TOML.
        """
        if isinstance(given, Mapping):
            return cls(inline(given))
        if not isinstance(given, str):
            raise ValueError("give text or a table, as in: eta = 0.01, name = 'x'")
        return cls(given)


# A field of arguments, which is saved as text.
ArgumentsField = Annotated[Arguments, PlainValidator(Arguments.of), PlainSerializer(str)]


def inline(table: Mapping[str, Any]) -> str:
    """Return a table as the text of its arguments, "a = 1, b = 'x'".

    Raises:
        ValueError: A value cannot be written in TOML, such as None.
    """
    return _toml(table)[1:-1]


def _toml(value: Any) -> str:
    """Return a value in TOML, on one line."""
    if isinstance(value, Mapping):
        pairs = (f"{_key(str(key))} = {_toml(entry)}" for key, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"{value!r} cannot be written in TOML")
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key, ensure_ascii=False)
