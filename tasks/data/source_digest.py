"""A digest of what a function does, from its source: part of the name of what it returned."""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import CodeType
from typing import Any

DIGITS = 12
# Values that a function may have from around it, which do not change and whose text says all.
VALUES = (str, int, float, bool, bytes, type(None), PurePath)


def source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function's source, hexadecimal.

    Those of the functions of its own module that it calls, and what it has from the function around
    it, belong to it, and so do a method's object and the arguments of a `functools.partial`.
    """
    digest = hashlib.sha256()
    seen: set[Any] = set()
    waiting: list[Any] = [function]
    while waiting:
        one = waiting.pop(0)
        if inspect.isfunction(one):
            if one in seen:
                continue
            seen.add(one)
        if isinstance(one, functools.partial):
            waiting += [one.func, *one.args, *one.keywords.values()]
            digest.update(repr(list(one.keywords)).encode())
        elif inspect.ismethod(one):
            waiting += [one.__func__, one.__self__]
        elif inspect.isfunction(one):
            digest.update(_source(one).encode())
            waiting += _from_around(one)
        elif isinstance(one, tuple):
            waiting += one
        elif isinstance(one, VALUES):
            digest.update(repr(one).encode())
    return digest.hexdigest()[:DIGITS]


def _source(function: Any) -> str:
    try:
        source = inspect.getsource(function)
    except OSError:  # it was not read from a file
        source = ""
    if source and function.__name__ != "<lambda>":
        return source
    # A lambda's source is its whole line, which may have several.
    return source + repr([_code(one) for one in _codes(function.__code__)])


def _code(code: CodeType) -> tuple[bytes, tuple[str, ...], list[str]]:
    constants = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_code, code.co_names, constants


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _from_around(function: Any) -> list[Any]:
    """Return the functions and values that a function has from its module and its surroundings."""
    known, module = function.__globals__, function.__module__
    names = [name for code in _codes(function.__code__) for name in code.co_names if name in known]
    own = [
        known[name]
        for name in names
        if isinstance(known[name], (*VALUES, tuple))
        or getattr(known[name], "__module__", None) == module
    ]
    closed = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return [*own, *closed, *(function.__defaults__ or ())]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True
