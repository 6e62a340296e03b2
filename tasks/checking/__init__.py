"""Checks of a task. A check is a function of a `Trial` that yields findings."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from tasks.data.dataset import DataError


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


@contextmanager
def calling(attribute: str, where: str) -> Iterator[None]:
    """Turn what a task's own code raises into a `TaskError`.

    Args:
        attribute: The attribute of the `Task` that is called.
        where: Where, or for what, as the error's text says it: "for 8 inputs".
    """
    try:
        yield
    except TaskError:
        raise
    except DataError as error:
        raise TaskError("dataset", str(error)) from error
    except Exception as error:
        is_class = attribute == "loss" and isinstance(error, IndexError)
        fix = " Number the classes from 0" if is_class else ""
        text = f"raised {type(error).__name__} {where}: {error}{fix}"
        raise TaskError(attribute, text) from error
