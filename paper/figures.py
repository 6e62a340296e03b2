"""A figure of a paper that no table of runs gives: what was found, and the command to repeat it."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedavg_app.errors import ConfigError
from tasks.data.atomic_file import replacing

# The folder of all of them in that of the results.
FIGURES = "figures"


class Figure(BaseModel):
    """A file <name>.json in the folder of figures, with its picture <name>.png.

    Attributes:
        title: What it shows.
        source: Where the paper shows it.
        command: What makes it again.
        found: The numbers in words, a line each.
        data: What the picture was drawn from.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    source: str
    command: str
    found: list[str]
    data: dict[str, Any]

    def write(self, path: Path) -> None:
        """Write it, all of it or nothing."""
        with replacing(path) as temporary:
            temporary.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_figures(results: Path) -> dict[Path, Figure]:
    """Return the figures of a folder of results, by their files.

    Raises:
        ConfigError: A file there is not a figure, or has no picture.
    """
    found = {}
    for path in sorted((results / FIGURES).glob("*.json")):
        try:
            found[path] = Figure.model_validate_json(path.read_bytes())
        except ValidationError as error:
            reason = str(error).splitlines()[0]
            raise ConfigError("figure", str(path), f"is not a figure ({reason})") from error
        picture = path.with_suffix(".png")
        if not picture.is_file():
            raise ConfigError("figure", str(path), f"there is no {picture.name}; make it again")
    return found
