"""Records: what is kept of a run, one small JSON file with config, command, versions, history."""

import json
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from fedavg_app.config import Effect, TrainingConfig, fields_with, parse_saved
from fedavg_app.errors import ConfigError
from fedavg_app.results.run_folder import MODEL_FILE
from fedavg_app.sweep.identity import Identity, arguments, identity, settings
from tasks.data.atomic_file import replacing

# The folder of all of them in that of the results.
RECORDS = "records"
# The key of runs whose clients keep their own arrays.
LOCAL = "local-arrays"


class History(BaseModel):
    """A row for every test of the global model; an empty column means that nothing happened.

    Attributes:
        round: The round; 0 is the initial model.
        accuracy: Test accuracy, in [0, 1]; of a run with "local-arrays" the clients' own.
        train_loss: Mean training loss of that round; None where there is none.
        test_loss: Mean test loss; None where not finite.
        bytes_up: All bytes that clients have sent so far.
        bytes_down: All bytes that they have been sent.
        rejected: The replies refused since the row before.
        virtual_seconds: On the virtual clock, since the start.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    round: list[int]
    accuracy: list[float]
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

    @property
    def identity(self) -> Identity:
        """The identity of its run, with the learning rate it had, not today's default."""
        rate = self.summary.get("learning-rate", self.config["learning-rate"])
        return identity(parse_saved({**self.config, "learning-rate": rate}))

    @property
    def repeat(self) -> str:
        """The command that repeats the run, by today's keys; add data-dir."""
        return command_line(parse_saved(self.config))


@dataclass(frozen=True)
class Stored:
    """A record with its file and the identity of its run."""

    path: Path
    record: Record
    identity: Identity


def command_line(config: TrainingConfig) -> str:
    """Return the command for this config, as a person would type it."""
    words = " ".join(
        word if word.startswith("--") else _quote(word)
        for word in arguments(config, fields_with(type(config), Effect.NONE))
    )
    return f"python simulation.py {words}"


def read_run(folder: Path) -> Record:
    """Return the record of the finished run in a folder."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    status = summary.pop("status")
    config = parse_saved(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    lines = (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
    ended = datetime.fromtimestamp((folder / "summary.json").stat().st_mtime).astimezone()
    model = folder / MODEL_FILE
    data = summary.pop("data")
    if config.data_dir:  # without this machine's path to them
        data = data.replace(str(Path(config.data_dir).expanduser()), "data-dir")
    return Record(
        status=status,
        command=command_line(config),
        config=settings(config),
        date=f"{ended:%Y-%m-%d}",
        data=data,
        fingerprint=summary.pop("data-fingerprint"),
        versions=summary.pop("versions"),
        summary=summary,
        history=condense(map(json.loads, lines), on_clients=bool(settings(config).get(LOCAL))),
        commit=_commit(),
        model=sha256(model.read_bytes()).hexdigest() if model.is_file() else "",
    )


def _commit() -> str:
    """Return the project's current commit; empty if it is not a git repository."""
    root = Path(__file__).parents[1]
    words = ["git", f"--git-dir={root / '.git'}", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(  # noqa: S603
            [*words, "--exclude=*"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def condense(lines: Iterable[Mapping[str, Any]], *, on_clients: bool = False) -> History:
    """Return the history for the lines of a ``history.jsonl``; losses keep four digits.

    Args:
        lines: The lines.
        on_clients: Whether the run's accuracy is the clients' own (`RoundMetrics.score`).
    """
    table: dict[str, list[Any]] = {name: [] for name in History.model_fields}
    rejected, passed = 0, 0.0
    for line in lines:
        rejected += len(line["rejected"])
        passed += line.get("virtual_seconds", {}).get("round", 0.0)
        accuracy = line["client_metrics"].get("accuracy") if on_clients else line["accuracy"]
        if accuracy is None:
            continue
        table["round"].append(line["round"])
        table["accuracy"].append(round(accuracy, 6))
        table["train_loss"].append(_rounded(line["train_loss"]))
        table["test_loss"].append(_rounded(line["test_loss"]))
        table["bytes_up"].append(int(line["total"]["bytes_up"]))
        table["bytes_down"].append(int(line["total"]["bytes_down"]))
        table["rejected"].append(rejected)
        table["virtual_seconds"].append(round(passed, 3))
        rejected = 0
    always = ("round", "accuracy")
    return History(**{key: values for key, values in table.items() if key in always or any(values)})


def write(record: Record, path: Path) -> None:
    """Write the record, all of it or nothing; a line for each of its fields."""
    fields = ",\n".join(
        f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False, separators=(',', ': '))}"
        for key, value in record.model_dump(exclude_defaults=True).items()
    )
    with replacing(path) as temporary:
        temporary.write_text(f"{{\n{fields}\n}}\n", encoding="utf-8")


def read_all(folder: Path) -> list[Stored]:
    """Return all records in a folder, however deep.

    Raises:
        ConfigError: A file there is not a record.
    """
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            record = Record.model_validate_json(path.read_bytes())
            found.append(Stored(path, record, record.identity))
        except ValueError as error:
            reason = str(error).splitlines()[0]
            fix = f"is not the record of a run ({reason}); delete it, and its run is done again"
            raise ConfigError("record", str(path), fix) from error
    return found


def by_run(found: Iterable[Stored], data: str = "") -> dict[Identity, Stored]:
    """Return the records by identity; with a fingerprint, only those on that data."""
    return {match.identity: match for match in found if data in ("", match.record.fingerprint)}


def find(records: Mapping[Identity, Stored], config: TrainingConfig) -> Stored | None:
    """Return the record of this config's run; None if there is none.

    A run that stopped at its target is the run of all configs that only give it more rounds.
    """
    wanted = identity(config)
    if exact := records.get(wanted):
        return exact
    for entry in records.values():
        summary = entry.record.summary
        if (
            {key for key, _ in entry.identity ^ wanted} == {"num-server-rounds"}
            and summary["rounds-to-target"] is not None
            and summary["rounds"] <= config.num_server_rounds
        ):
            return entry
    return None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _quote(word: str) -> str:
    """Quote for a shell, with double quotes where they do: the arguments' own are single."""
    if shlex.quote(word) == word or any(sign in word for sign in '"$`\\!'):
        return shlex.quote(word)
    return f'"{word}"'
