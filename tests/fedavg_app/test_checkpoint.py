"""Runs that go on from a checkpoint end as if nothing had happened."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord
from safetensors.numpy import load_file

import strategies
from fedavg_app import checkpoint
from fedavg_app.checkpoint import Checkpoint
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.history import RoundRecord
from fedavg_app.server_app import run
from tests.fedavg_app.local_grid import LocalGrid

CONFIG = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 10, "fraction-train": 0.5,
    "num-server-rounds": 9, "checkpoint-every": 2, "target-accuracy": 0.0, "evaluate-every": 3,
}  # fmt: skip
COMPRESSED = {"local-steps": 1, "momentum": 0.9}


class Power(BaseException):
    """It went off."""


class RememberingGrid(LocalGrid):
    """It fails for good in ``last_round``, after the clients have trained."""

    def __init__(self, config, last_round=None):
        super().__init__(config, config["num-clients"])
        self._last_round = last_round

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        if self._last_round is not None:
            for message in messages:
                config = message.content.config_records.get("config", {})
                if config.get("server-round") == self._last_round:
                    raise Power
        return ids

    def changed_states(self):
        return {
            context.node_config["partition-id"]: pickle.dumps(context.state) or None
            for context in self.contexts.values()
        }

    def restore_states(self, states):
        for context in self.contexts.values():
            context.state = pickle.loads(states[context.node_config["partition-id"]])


def start(runs, last_round=None, **changes):
    values = {**CONFIG, "run-dir": str(runs), **changes}
    config = {**RunConfig().model_dump(by_alias=True), **values}
    return run(RememberingGrid(config, last_round), config)


def only(runs):
    (folder,) = Path(runs).iterdir()
    return folder


def history(folder):
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [
        {**line, "seconds": None, "rejected": list(line["rejected"].values())} for line in lines
    ]


STC = {"strategy": "stc", **COMPRESSED}


@pytest.mark.parametrize(
    ("last_round", "changes"),
    [
        (4, {"momentum": 0.9}),
        (1, STC),
        (5, STC),
        (9, STC),
        (6, {"strategy": "signsgd", **COMPRESSED}),
        (4, {"strategy": "flwr.serverapp.strategy:FedAdam"}),
    ],
    ids=lambda value: value.get("strategy", "fedavg") if isinstance(value, dict) else str(value),
)
def test_a_run_that_was_cut_off_ends_in_the_same_model(tmp_path, last_round, changes):
    start(tmp_path / "whole", **changes)
    whole = only(tmp_path / "whole")
    with pytest.raises(Power):
        start(tmp_path / "cut", last_round, **changes)
    cut = only(tmp_path / "cut")
    with (cut / "history.jsonl").open("a") as file:
        file.write('{"round": 10, "half a li')
    start(tmp_path / "elsewhere", resume=str(cut), **changes)

    ours, theirs = (load_file(folder / "model.safetensors") for folder in (cut, whole))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert history(cut) == history(whole)
    summary = json.loads((cut / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert not (tmp_path / "elsewhere").exists()
    assert json.loads((cut / "config.json").read_text())["resume"] == ""


def test_a_finished_run_can_be_given_more_rounds(tmp_path):
    start(tmp_path / "long", **{"num-server-rounds": 12})
    start(tmp_path / "short", **{"num-server-rounds": 6})
    short = only(tmp_path / "short")
    start(tmp_path, resume=str(short), **{"num-server-rounds": 12})
    ours, theirs = (load_file(f / "model.safetensors") for f in (short, only(tmp_path / "long")))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


OPERATIONS = ("mkdir", "write_bytes", "write_text", "chmod", "replace", "unlink")


def test_power_that_goes_off_at_any_moment_leaves_this_checkpoint_or_the_one_before(
    tmp_path, monkeypatch
):
    """Every operation on files is the last one once, before and after it has happened."""
    originals = {name: getattr(Path, name) for name in OPERATIONS}
    arrays = [ArrayRecord({"w": ArrayRecord([np.full(3, n, np.float32)])["0"]}) for n in range(3)]
    states = [{0: b"zero", 1: b"one"}, {1: b"one more", 2: b"two"}]
    config = RunConfig()
    seen = set()
    for crash in range(1000):
        folder = tmp_path / str(crash)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config.model_dump(by_alias=True)))
        lines = [json.dumps(RoundRecord(n).as_json()) for n in range(3)]
        (folder / "history.jsonl").write_text("\n".join(lines))
        strategy = strategies.build("stc", {})
        saved = Checkpoint(folder, "data")
        saved.save(1, strategy, arrays[1], states[0])
        count = 0

        def failing(name, crash=crash):
            def call(self, *arguments, **keys):
                nonlocal count
                count += 1
                if count == 2 * crash:
                    raise Power
                result = originals[name](self, *arguments, **keys)
                if count == 2 * crash + 1:
                    raise Power
                count += 1
                return result

            return call

        for name in OPERATIONS:
            monkeypatch.setattr(Path, name, failing(name))
        finished = False
        try:
            saved.save(2, strategy, arrays[2], states[1])
            finished = True
        except Power:
            pass
        for name, original in originals.items():
            monkeypatch.setattr(Path, name, original)
        standing = checkpoint.load(config.model_copy(update={"resume": str(folder)}))
        found = standing.records[-1].round
        seen.add(found)
        assert standing.states == (states[0] if found == 1 else states[0] | states[1])
        assert np.array_equal(standing.arrays["w"].numpy(), arrays[found]["w"].numpy())
        # What a crash left over is gone with the next checkpoint.
        Checkpoint(folder, "data").save(3, strategy, arrays[0], {})
        assert len(list((folder / "checkpoint").iterdir())) == 1 + 1 + len(standing.states)
        if finished:
            break
    assert seen == {1, 2}
    assert crash > 5


def test_arrays_that_flower_has_sent_can_be_kept(tmp_path):
    """Cut up for sending, an array holds views of its bytes, which cannot be pickled."""
    arrays = ArrayRecord([np.arange(5, dtype=np.float32)])
    chunks = [child for array in arrays.children.values() for child in array.children.values()]
    assert chunks
    folder = tmp_path
    (folder / "config.json").write_text(json.dumps(RunConfig().model_dump(by_alias=True)))
    (folder / "history.jsonl").write_text(json.dumps(RoundRecord(0).as_json()))
    Checkpoint(folder, "x").save(0, strategies.build("fedavg", {}), arrays, {})
    kept = checkpoint.load(RunConfig(resume=str(folder))).arrays
    assert np.array_equal(kept["0"].numpy(), arrays["0"].numpy())


def test_a_client_that_has_forgotten_has_no_state_in_the_next_checkpoint(tmp_path):
    start(tmp_path)
    folder = only(tmp_path)
    saved = Checkpoint(folder, "x")
    strategy = strategies.build("fedavg", {})
    saved.save(1, strategy, ArrayRecord(), {3: b"three", 4: b"four"})
    saved.save(2, strategy, ArrayRecord(), {3: None})
    config = RunConfig(**{**CONFIG, "resume": str(folder)})
    kept = checkpoint.load(config).states
    assert kept[4] == b"four"
    assert 3 not in kept


@pytest.mark.parametrize(
    ("spoil", "fragment"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json cannot be read"),
        (lambda folder: (folder / "checkpoint" / "manifest.json").unlink(), "has no checkpoint"),
        (lambda folder: next(folder.glob("checkpoint/*.server")).write_bytes(b"x"), "has changed"),
        (lambda folder: next(folder.glob("checkpoint/*.client")).unlink(), "cannot be read"),
        (lambda folder: (folder / "history.jsonl").write_text(""), "ends before round 8"),
        (lambda folder: (folder / "checkpoint" / "manifest.json").write_text("{"), "be read"),
    ],
)
def test_what_cannot_be_resumed_is_named_in_one_line(tmp_path, spoil, fragment):
    start(tmp_path)
    folder = only(tmp_path)
    spoil(folder)
    with pytest.raises(ConfigError) as caught:
        start(tmp_path, resume=str(folder))
    assert str(caught.value).startswith(f"resume = {str(folder)!r}: ")
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_config_or_other_data_are_not_resumed(tmp_path):
    start(tmp_path)
    folder = only(tmp_path)
    before = (folder / "history.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="batch-size = 20: the run to resume has 10; give that"):
        start(tmp_path, resume=str(folder), **{"batch-size": 20})
    manifest = folder / "checkpoint" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"data": "', '"data": "0'))
    with pytest.raises(ConfigError, match="not the data of the run to resume"):
        start(tmp_path, resume=str(folder))
    assert (folder / "history.jsonl").read_bytes() == before
