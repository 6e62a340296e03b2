"""The documents name only what exists, paths and keys of the config, and all fields of files."""

import re
from dataclasses import fields, replace
from itertools import pairwise

import pytest
import typer

from docs.generate_configuration import PAGE, page
from fedavg_app.callbacks.base import TrainingRun
from fedavg_app.callbacks.run_files import summarize
from fedavg_app.cli import main
from fedavg_app.errors import DivergedError
from fedavg_app.results.history import RoundMetrics, TrainingResult
from paper import __main__ as paper
from tests.support.documents import DOCUMENTS, ROOT, SPAN, commands, examples, spans
from tests.support.training_runs import history, training_run

PATH = re.compile(r"(?:\.\./)*[\w.-]+(?:/[\w.-]+)*/?")
SUFFIXES = (".py", ".toml", ".md")
ASSIGNED = re.compile(r"([A-Za-z][\w-]*)\s*=")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
KEYS = {
    word.removeprefix("--")
    for app in (main.app, paper.app)
    for command in typer.main.get_command(app).commands.values()
    for parameter in command.params
    for word in [*parameter.opts, *parameter.secondary_opts]
}

documents = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def looks_like_a_path(text):
    if not PATH.fullmatch(text):
        return False
    first = text.split("/")[0]
    return text.endswith(SUFFIXES) or ("/" in text and (ROOT / first).is_dir())


def product_files():
    """Return the files of the packages and the documents."""
    folders = ("fedavg_app", "strategies", "tasks", "paper", "docs")
    return [path for folder in folders for path in (ROOT / folder).rglob("*")]


def assigned(text):
    """Return the keys of "a = 1 b = 'c = 2'"."""
    return ASSIGNED.findall(QUOTED.sub("''", text))


def run_config_keys(words):
    """Return the keys that the words of a command set."""
    if "simulation.py" in words:
        options = [word for word in words if word.startswith("--")]
        return [option.removeprefix("--").split("=")[0] for option in options]
    keys = []
    for option, value in pairwise(words):
        if option in ("-c", "--run-config"):
            keys += assigned(value)
    return keys


@documents
def test_named_paths_exist(document):
    # A file that the document's own example creates may be named before it exists.
    made = set(examples(document))
    named = {span for span in spans(document.read_text()) if looks_like_a_path(span)}
    names = {path.name for path in product_files()}
    missing = [
        path
        for path in sorted(named)
        if not (ROOT / path).exists()
        and not (document.parent / path).exists()
        and path.split("/")[-1] not in made
        and path not in names  # a file name without its folder
    ]
    assert not missing


@documents
def test_commands_set_real_keys(document):
    used = {key for command in commands(document.read_text()) for key in run_config_keys(command)}
    assert used <= KEYS


def test_configuration_page_is_generated_from_the_config():
    assert PAGE.read_text(encoding="utf-8") == page()


RUN_FOLDER = (ROOT / "docs" / "run-folder.md").read_text(encoding="utf-8")


def fields_in(section, page=RUN_FOLDER):
    """Return the names in the first column of a section's table."""
    text = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)[1]
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in SPAN.findall(row)]


def test_page_has_the_fields_of_the_history():
    assert fields_in("history.jsonl") == [field.name for field in fields(RoundMetrics)]


def test_page_has_the_fields_of_the_summary():
    privacy = {"epsilon": 1.0, "epsilon-replace-one": 2.0, "delta": 0.1}
    counted = {"virtual_seconds": {"round": 1.0}, "privacy": privacy}
    counted |= {"validation_metrics": {"accuracy": 0.5}}
    rounds = [replace(metrics, **counted) for metrics in history([0.1, 0.5])]
    result = TrainingResult(rounds, error=DivergedError("all NaN"))
    found = summarize(
        replace(training_run(budget="1 MB up"), own_data={0: ("a8", 70)}), result, 1.0
    )
    assert sorted(fields_in("summary.json")) == sorted(found)


def test_page_has_the_attributes_of_what_a_callback_is_called_with():
    page = (ROOT / "docs" / "tracking.md").read_text(encoding="utf-8")
    own = {field.name for field in fields(TrainingRun)}
    own |= {name for name, value in vars(TrainingRun).items() if isinstance(value, property)}
    assert set(fields_in("What a callback may know", page)) == own
