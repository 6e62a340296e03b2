"""A digest of what a function does, from its source: part of the name of what it returned."""

import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from datetime import date, time, timedelta
from pathlib import Path, PurePath
from types import CodeType, ModuleType
from typing import Any

import numpy as np

DIGITS = 12
PLAIN = (
    str, int, float, complex, bool, bytes, type(None), PurePath, range, date, time, timedelta,
    np.generic, np.dtype,
)  # fmt: skip
# Of a class, what Python adds, some of it in any order.
BY_PYTHON = (
    "__dict__", "__weakref__", "__module__", "__firstlineno__", "__static_attributes__"
)  # fmt: skip
# Where code is that has a version of its own: installed packages and Python.
INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})


def source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function's source, hexadecimal.

    To it belong the functions and classes that it names, other than those of installed packages,
    and the values that it has: constants of its module, variables of the functions around it,
    defaults, the arguments of a `functools.partial` and the attributes of a method's object.
    """
    digest = _Digest()
    digest.add(function)
    return digest.total.hexdigest()[:DIGITS]


class _Digest:
    """Adds up functions and values, and what these refer to, each once."""

    def __init__(self) -> None:
        self.total = hashlib.sha256()
        self._seen: dict[int, Any] = {}  # by id; kept, so that no other object gets it

    def add(self, value: Any) -> None:
        if isinstance(value, PLAIN):
            self._text(repr(value))
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, functools.partial):
            self._add_all([value.func, *value.args, value.keywords])
        elif isinstance(value, set | frozenset):
            self._text(repr(sorted(map(repr, value))))
        elif isinstance(value, tuple | list):
            self._add_all(value)
        elif isinstance(value, Mapping):
            self._add_all([part for pair in value.items() for part in pair])
        elif isinstance(value, np.ndarray):
            self._text(f"{value.dtype}{value.shape}")
            if value.dtype.hasobject:
                self._add_all(value.ravel().tolist())
            else:
                self.total.update(np.ascontiguousarray(value).tobytes())
        elif hasattr(value, "__array__") and not inspect.isclass(value):
            # A table of pandas, with the names of its columns and rows; or a tensor of torch.
            self._text(str(getattr(value, "dtype", "")))
            self.add(value.to_dict() if hasattr(value, "to_dict") else value.tolist())
        elif inspect.ismethod(value):
            self._add_all([value.__func__, value.__self__])
        elif inspect.isfunction(value):
            self._add_function(value)
        elif isinstance(value, staticmethod | classmethod) or hasattr(value, "__wrapped__"):
            self.add(inspect.unwrap(value))
        elif inspect.isclass(value):
            self._add_class(value)
        elif hasattr(value, "__dict__") and not _is_installed(type(value).__module__):
            self._add_all([type(value), vars(value)])

    def _text(self, text: str) -> None:
        self.total.update(text.encode() + b"\0")

    def _add_all(self, values: Any) -> None:
        self._text(str(len(values)))
        for value in values:
            self.add(value)

    def _add_class(self, found: type) -> None:
        self._text(found.__qualname__)
        if not _is_installed(found.__module__):
            self._add_all(found.__bases__)
            self._add_all(
                [attribute for name, attribute in vars(found).items() if name not in BY_PYTHON]
            )

    def _add_function(self, function: Any) -> None:
        if _is_installed(function.__module__):
            self._text(f"{function.__module__}.{function.__qualname__}")
            return
        self._text(_source(function))
        codes = list(_codes(function.__code__))
        names = dict.fromkeys(name for code in codes for name in code.co_names)
        known = [function.__globals__[name] for name in names if name in function.__globals__]
        for module in [value for value in known if isinstance(value, ModuleType)]:
            if not _is_installed(module.__name__):
                known += [vars(module)[name] for name in names if name in vars(module)]
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        self._add_all([*known, *cells, function.__defaults__, function.__kwdefaults__])


def _is_installed(module: str) -> bool:
    """Return whether a module belongs to an installed package, to Python or to the script."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or str(Path(file)).startswith(INSTALLED)


def _source(function: Any) -> str:
    try:
        source = inspect.getsource(function)
    except OSError:  # it was not read from a file
        source = ""
    if source and function.__name__ != "<lambda>":
        return source
    # A lambda's source is its whole line, which may have several.
    return source + repr([_code(code) for code in _codes(function.__code__)])


def _code(code: CodeType) -> tuple[bytes, tuple[str, ...], list[str]]:
    constants = [
        repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
        for constant in code.co_consts
        if not isinstance(constant, CodeType)
    ]
    return code.co_code, code.co_names, constants


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True
