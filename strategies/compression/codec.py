"""How server and clients of a compressed strategy compress, and the text that describes it.

In this project's app each process builds its codec from the run's config. In any other app the
server's first message names it, and a client builds only built-in parts. Messages name the text's
digest: with another codec the bytes would decode to something else, often without an error.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from ..registry import read_part
from . import COMPRESSORS
from .compressor import Compressor
from .error_feedback import check_contraction

Feedback = Literal["none", "residual", "aggregate"]


@dataclass(frozen=True)
class Codec:
    """Compressors and error feedback of a compressed strategy.

    Args:
        uplink: Compresses the clients' updates.
        downlink: Compresses the server's update of the global model.
        feedback: What clients and server do about what compression leaves out: "residual" adds it
            to the next update, "none" loses it; with "aggregate" clients send the difference of
            their update from the last global one, which they are sent (`strategies.cafe`).
        feedback_decay: beta in (0, 1]; a client adds beta times what was left out. The server's
            residual does not decay: SparseLoCo, whose beta this is, compresses the clients' updates
            only. With 1 the text does not have it.
        training: Distinguishes this training from others whose messages the same clients may get; 0
            if there are none.

    Raises:
        ValueError: Error feedback is unknown, or would diverge with these compressors; or its decay
            is not in (0, 1], or is given without error feedback.
    """

    uplink: Compressor
    downlink: Compressor
    feedback: Feedback = "residual"
    training: int = 0
    feedback_decay: float = 1.0

    def __post_init__(self) -> None:
        if self.feedback not in get_args(Feedback):
            names = ", ".join(map(repr, get_args(Feedback)))
            raise ValueError(f"feedback = {self.feedback!r}: give one of {names}")
        given = f"feedback-decay = {self.feedback_decay} with feedback {self.feedback!r}"
        if self.feedback != "residual" and self.feedback_decay != 1:
            raise ValueError(f"{given}: leave it out")
        if not 0 < self.feedback_decay <= 1:
            raise ValueError(f"{given}: give a number above 0 and at most 1")
        if self.feedback != "none":
            check_contraction("uplink", self.uplink)
            check_contraction("downlink", self.downlink)

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
            for name in (table["uplink"]["name"], table["downlink"]["name"]):
                if name not in COMPRESSORS.built_in:
                    raise ValueError(f"{name!r} is not built in")
            uplink, downlink = (
                COMPRESSORS.build(*read_part(key, table[key])) for key in ("uplink", "downlink")
            )
            feedback, training = table["feedback"], int(table.get("training", 0))
            decay = float(feedback.get("decay", 1))
            return cls(uplink, downlink, feedback["name"], training, decay)
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
        decay = {"decay": self.feedback_decay} if self.feedback_decay < 1 else {}
        table: dict[str, Any] = {
            "downlink": _described(self.downlink),
            "feedback": {"name": self.feedback, **decay},
            "uplink": _described(self.uplink),
            "warmup-rounds": 0,  # of an earlier method
        }
        if self.training:
            table["training"] = self.training
        return json.dumps(table, separators=(",", ":"), sort_keys=True, default=str)

    @cached_property
    def digest(self) -> int:
        """The CRC-32 of the text, which every message and reply names."""
        return zlib.crc32(str(self).encode())


def _described(part: Compressor) -> Mapping[str, Any]:
    """Return the name of a compressor and its arguments."""
    path = f"{type(part).__module__}:{type(part).__qualname__}"
    name = next((name for name, known in COMPRESSORS.built_in.items() if known == path), path)
    # Only dataclasses have arguments that are the same in every process.
    own: tuple[Field[Any], ...] = fields(part) if is_dataclass(part) else ()
    return {"name": name, **{field.name: getattr(part, field.name) for field in own if field.init}}
