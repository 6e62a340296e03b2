"""Checks of a task. A check is a function of a `Trial` that yields findings."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One line of a check.

    Attributes:
        kind: "error" for what makes the training wrong or impossible, "warning" for what may,
            "note" for what is good to know, "ok" for what is right.
        attribute: The attribute of the `Task` that it is about.
        text: What was found; for errors and warnings also what to do.
    """

    kind: Literal["ok", "note", "warning", "error"]
    attribute: str
    text: str

    def __str__(self) -> str:
        return f"{self.attribute}: {self.text}"


class TaskError(ValueError):
    """A task cannot be trained; the message names the attribute and what to do."""

    def __init__(self, attribute: str, text: str) -> None:
        super().__init__(f"{attribute}: {text}")
        self.finding = Finding("error", attribute, text)
