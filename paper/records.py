"""Records: what is kept of a run, one small JSON file with config, command, versions, history."""

import json
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from fedavg_app.config import Effect, TrainingConfig, fields_with, parse_saved
from fedavg_app.errors import ConfigError
from fedavg_app.results import finished_run
from fedavg_app.results.finished_run import FinishedRun
from fedavg_app.results.history import virtual_times
from fedavg_app.results.run_folder import MODEL_FILE, SUMMARY_FILE
from fedavg_app.sweep.planned_run import Identity, arguments, identity, settings
from tasks.data.atomic_file import replacing

# The folder of all records, in the folder of results.
RECORDS = "records"


class History(BaseModel):
    """A row for every test of the global model; an empty column means that nothing happened.

    Attributes:
        round: The round; 0 is the initial model.
        value: Test accuracy, in [0, 1], or another objective; of a run with "local-arrays" the
            clients' own. Older records call it accuracy.
        train_loss: Mean training loss of that round; None where there is none.
        test_loss: Mean test loss; None where not finite.
        bytes_up: All bytes that clients have sent so far.
        bytes_down: All bytes that they have been sent.
        rejected: The replies refused since the row before.
        virtual_seconds: On the virtual clock, since the start.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    round: list[int]
    value: list[float] = Field(validation_alias=AliasChoices("value", "accuracy"))
    train_loss: list[float | None] = []
    test_loss: list[float | None] = []
    bytes_up: list[int] = []
    bytes_down: list[int] = []
    rejected: list[int] = []
    virtual_seconds: list[float] = []


class Record(BaseModel):
    """One finished run.

    Attributes:
        status: "diverged" where the run ended because training diverged.
        command: The command of the version that ran it.
        config: Its settings by kebab-case key, without where it ran.
        date: When it ended, as YYYY-MM-DD.
        data: Where its data were from.
        fingerprint: SHA-256 of them.
        versions: Of what computed it, by package.
        summary: The other numbers of its ``summary.json``.
        history: Its course.
        commit: Of the project that ran it, with "-dirty" where files of it were changed; empty
            where that is not known, as in old records.
        model: SHA-256 of its ``model.safetensors``; likewise.
        name: What whoever entered it on a board calls the method.
        path: Its file, if it was read from one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    status: Literal["finished", "diverged"]
    command: str
    config: dict[str, Any]
    date: str
    data: str
    fingerprint: str
    versions: dict[str, str]
    summary: dict[str, Any]
    history: History
    commit: str = ""
    model: str = ""
    name: str = ""
    path: Path = Field(Path(), exclude=True)

    @cached_property
    def identity(self) -> Identity:
        """The identity of its run, with the learning rate it had, not today's default."""
        rate = self.summary.get("learning-rate", self.config["learning-rate"])
        return identity(parse_saved({**self.config, "learning-rate": rate}))

    @property
    def run(self) -> FinishedRun:
        """The run, without its rounds."""
        return FinishedRun(self.path, self.config, {**self.summary, "status": self.status}, [])

    @property
    def repeat(self) -> str:
        """The command that repeats the run, by today's keys; add data-dir."""
        return command_line(parse_saved(self.config))


def command_line(config: TrainingConfig) -> str:
    """Return the command for this config, as a person would type it."""
    words = " ".join(
        word if word.startswith("--") else _quote(word)
        for word in arguments(config, fields_with(type(config), Effect.NONE))
    )
    return f"python simulation.py {words}"


def read_run(folder: Path) -> Record:
    """Return the record of the finished run in a folder."""
    run = finished_run.read_run(folder)
    config, summary, model = parse_saved(run.config), dict(run.summary), folder / MODEL_FILE
    ended = datetime.fromtimestamp((folder / SUMMARY_FILE).stat().st_mtime).astimezone()
    data = summary.pop("data")
    if config.data_dir:  # without this machine's path to them
        data = data.replace(str(Path(config.data_dir).expanduser()), "data-dir")
    return Record(
        status=summary.pop("status"),
        command=command_line(config),
        config=settings(config),
        date=f"{ended:%Y-%m-%d}",
        data=data,
        fingerprint=summary.pop("data-fingerprint"),
        versions=summary.pop("versions"),
        summary=summary,
        history=condense(run),
        commit=_commit(),
        model=sha256(model.read_bytes()).hexdigest() if model.is_file() else "",
    )


def _commit() -> str:
    """Return the commit of this repository, with "-dirty" if files are changed; empty if none."""
    root = Path(__file__).parents[1]
    words = ["git", f"--git-dir={root / '.git'}", "describe", "--always", "--dirty", "--abbrev=40"]
    command = [*words, "--exclude=*"]
    try:
        return subprocess.check_output(  # noqa: S603
            command, cwd=root, stderr=subprocess.DEVNULL, text=True
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def condense(run: FinishedRun) -> History:
    """Return the history of a run, by its objective; losses keep four digits."""
    table: dict[str, list[Any]] = {name: [] for name in History.model_fields}
    rejected = 0
    for metrics, passed in zip(run.history, virtual_times(run.history), strict=True):
        rejected += len(metrics.rejected)
        value = metrics.result(run.objective, on_clients=run.on_clients)
        if value is None:
            continue
        row = (
            metrics.round, round(value, 6), _rounded(metrics.train_loss),
            _rounded(metrics.test_loss), int(metrics.total["bytes_up"]),
            int(metrics.total["bytes_down"]), rejected, round(passed, 3),
        )  # fmt: skip
        for column, number in zip(table.values(), row, strict=True):
            column.append(number)
        rejected = 0
    always = ("round", "value")
    return History(**{key: values for key, values in table.items() if key in always or any(values)})


def write(record: Record, path: Path) -> None:
    """Write the record, all of it or nothing; a line for each of its fields."""
    fields = ",\n".join(
        f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False, separators=(',', ': '))}"
        for key, value in record.model_dump(exclude_defaults=True).items()
    )
    with replacing(path) as temporary:
        temporary.write_text(f"{{\n{fields}\n}}\n", encoding="utf-8")


def read_all(folder: Path) -> list[Record]:
    """Return all records in a folder, however deep.

    Raises:
        ConfigError: A file there is not a record.
    """
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            read = Record.model_validate_json(path.read_bytes())
            found.append(record := read.model_copy(update={"path": path}))
            hash(record.identity)  # refuses a config that cannot be used
        except ValueError as error:
            reason = str(error).splitlines()[0]
            fix = f"is not the record of a run ({reason}); delete it, and its run is done again"
            raise ConfigError("record", str(path), fix) from error
    return found


def by_run(found: Iterable[Record], data: str = "") -> dict[Identity, Record]:
    """Return the records by identity; with a fingerprint, only those on that data."""
    return {record.identity: record for record in found if data in ("", record.fingerprint)}


def find(records: Mapping[Identity, Record], config: TrainingConfig) -> Record | None:
    """Return the record of this config's run; None if there is none.

    A run that stopped at its target is the run of all configs that only give it more rounds.
    """
    wanted = identity(config)
    if exact := records.get(wanted):
        return exact
    for record in records.values():
        summary = record.summary
        if (
            {key for key, _ in record.identity ^ wanted} == {"num-server-rounds"}
            and summary["rounds-to-target"] is not None
            and summary["rounds"] <= config.num_server_rounds
        ):
            return record
    return None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _quote(word: str) -> str:
    """Quote for a shell, with double quotes where they do: the arguments' own are single."""
    if shlex.quote(word) == word or any(sign in word for sign in '"$`\\!'):
        return shlex.quote(word)
    return f'"{word}"'
