"""Values that may be an array, a tensor, or a dictionary or tuple of them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Return the value with the function's result in the place of every array; None stays None."""
    if isinstance(value, Mapping):
        return {key: map_leaves(function, part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map_leaves(function, part) for part in value)
    return None if value is None else function(value)


def leaves(value: Any) -> Iterator[Any]:
    """Yield the arrays of a value."""
    if isinstance(value, Mapping | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(part)
    elif value is not None:
        yield value


def first_leaf(value: Any) -> Any:
    """Return the first array of a value; StopIteration if it has none."""
    return next(leaves(value))
