"""How server and clients of a compressed strategy compress, and the text that describes it.

In this project's app each process builds its codec from the run's config. In any other app the
server's first message names it, and a client builds only built-in parts. Messages name the text's
digest: with another codec the bytes would decode to something else, often without an error.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from ..registry import Registry
from . import COMPRESSORS, FEEDBACK
from .compressor import Compressor
from .error_feedback import (
    ErrorFeedback,
    NoFeedback,
    Residual,
    check_contraction,
)


@dataclass(frozen=True)
class Codec:
    """Compressors and error feedback of a compressed strategy.

    Args:
        uplink: Compresses the clients' updates.
        downlink: Compresses the server's update of the global model.
        feedback: What clients do about what compression leaves out.
        training: Distinguishes this training from others whose messages the same clients may get; 0
            if there are none.

    Raises:
        ValueError: Error feedback would diverge with these compressors.
    """

    uplink: Compressor
    downlink: Compressor
    feedback: ErrorFeedback = field(default_factory=Residual)
    training: int = 0

    def __post_init__(self) -> None:
        self.feedback.check_compressor(self.uplink)
        if not isinstance(self.feedback, NoFeedback):
            check_contraction("downlink", self.downlink)  # the server keeps a residual, too

    @classmethod
    def parse(cls, text: str) -> "Codec | None":
        """Return the codec of a server's text; None for an empty text.

        Raises:
            ValueError: The text is invalid, or names parts that are not built in.
        """
        if not text:
            return None
        try:
            table = json.loads(text)
            uplink, downlink = (
                COMPRESSORS.build_part(key, _read_part(key, table[key]))
                for key in ("uplink", "downlink")
            )
            feedback = FEEDBACK.build_part("feedback", _read_part("feedback", table["feedback"]))
            return cls(uplink, downlink, feedback, int(table.get("training", 0)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"the server's codec cannot be made here ({error}): give the ClientApp the "
                "server's strategy itself, mods=[MyStrategy(...).client_mod]"
            ) from error

    def of_training(self, text: str) -> "Codec":
        """Return this codec with the training of a server's text; unchanged if that is empty."""
        return replace(self, training=json.loads(text).get("training", 0)) if text else self

    def __str__(self) -> str:
        """Return the parts with their arguments as JSON, in ASCII, as docs/protocol.md has it."""
        table: dict[str, Any] = {
            "downlink": _described(COMPRESSORS, self.downlink),
            "feedback": _described(FEEDBACK, self.feedback),
            "uplink": _described(COMPRESSORS, self.uplink),
            "warmup-rounds": 0,  # of an earlier method
        }
        if self.training:
            table["training"] = self.training
        return json.dumps(table, separators=(",", ":"), sort_keys=True, default=str)

    @cached_property
    def digest(self) -> int:
        """The CRC-32 of the text, which every message and reply names."""
        return zlib.crc32(str(self).encode())


def _described(registry: Registry[Any], part: object) -> Mapping[str, Any]:
    """Return the name of a part and its arguments; null for an infinite argument."""
    path = f"{type(part).__module__}:{type(part).__qualname__}"
    name = next((name for name, known in registry.built_in.items() if known == path), path)
    # Only dataclasses have arguments that are the same in every process.
    own = [field.name for field in fields(part) if field.init] if is_dataclass(part) else []
    arguments = {argument: getattr(part, argument) for argument in own}
    return {
        "name": name,
        **{key: None if value == inf else value for key, value in arguments.items()},
    }


def _read_part(key: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a server's text as `Registry.build_part` takes it; ValueError as `parse`."""
    part = {name: value for name, value in table.items() if value is not None}
    # Others are "package.module:Class".
    if outside := [text for text in _texts(part) if ":" in text]:
        raise ValueError(f"{key}: {outside[0]!r} is not built in")
    return part


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a value of JSON."""
    if isinstance(value, Mapping):
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, str):
        yield value
