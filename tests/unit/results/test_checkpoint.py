import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord

import strategies
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.results.checkpoint import (
    RunState,
    check_run_folder,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from fedavg_app.results.history import RoundMetrics
from tests.support.one_line import one_line


class PowerLossError(BaseException):
    """The process dies."""


def write_run(folder, last_round):
    """Write the config and the history of a run, without a checkpoint."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(RunConfig().model_dump(by_alias=True)))
    lines = [json.dumps(RoundMetrics(number).as_json()) for number in range(last_round + 1)]
    (folder / "history.jsonl").write_text("\n".join(lines))


def save(folder, server_round, model, states, strategy=None):
    """Save a checkpoint as `server_app.run` does."""
    strategy = strategies.build("fedavg", {}) if strategy is None else strategy
    state = RunState(strategy, model, [RoundMetrics(server_round)], "data", states, model)
    save_checkpoint(folder, RunConfig(), state)


def load(folder):
    return load_checkpoint(RunConfig(resume=str(folder)))


def model(value):
    return ArrayRecord({"w": ArrayRecord([np.full(3, value, np.float32)])["0"]})


OPERATIONS = ("open", "chmod", "replace", "unlink")


def test_power_loss_at_any_file_operation_leaves_this_or_the_previous_checkpoint(
    tmp_path, monkeypatch
):
    """The power fails once before and once after each file operation."""
    originals = {name: getattr(Path, name) for name in OPERATIONS}
    models = [model(value) for value in range(3)]
    states = [{0: b"zero", 1: b"one"}, {1: b"one more", 2: b"two"}]
    rounds = set()
    for crash in range(1000):
        folder = tmp_path / str(crash)
        write_run(folder, 3)
        save(folder, 1, models[1], states[0], strategies.build("stc", {}))
        count = 0

        def failing(name, crash=crash):
            def call(self, *arguments, **keys):
                nonlocal count
                count += 1
                if count == 2 * crash:
                    raise PowerLossError
                result = originals[name](self, *arguments, **keys)
                if count == 2 * crash + 1:
                    raise PowerLossError
                count += 1
                return result

            return call

        for name in OPERATIONS:
            monkeypatch.setattr(Path, name, failing(name))
        finished = False
        try:
            save(folder, 2, models[2], states[1])
            finished = True
        except PowerLossError:
            pass
        for name, original in originals.items():
            monkeypatch.setattr(Path, name, original)
        state = load(folder)
        found = state.history[-1].round
        rounds.add(found)
        assert state.client_states == states[found - 1]
        assert np.array_equal(state.model["w"].numpy(), models[found]["w"].numpy())
        assert np.array_equal(state.best_model["w"].numpy(), models[found]["w"].numpy())
        if finished:
            break
    assert rounds == {1, 2}
    assert crash > 3


def test_strategy_that_cannot_be_pickled_ends_the_run_with_one_line(tmp_path):
    write_run(tmp_path, 0)
    strategy = strategies.build("fedavg", {})
    strategy.file = (tmp_path / "open").open("w")
    with strategy.file, one_line(RunError, "cannot write the checkpoint ", ": cannot pickle"):
        save(tmp_path, 0, ArrayRecord(), {}, strategy)
    assert not has_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("damage", "config", "reason"),
    [
        (lambda folder: None, {"seed": 7}, "seed = 7: the run to resume has 1; give that"),
        (lambda folder: flip(folder / "checkpoint"), {}, "checkpoint is damaged"),
        (lambda folder: write_run(folder, 1), {}, "history.jsonl ends before round 2"),
        (lambda folder: (folder / "checkpoint").unlink(), {}, "it has no checkpoint"),
    ],
)
def test_damaged_or_other_run_is_refused_in_one_line(tmp_path, damage, config, reason):
    write_run(tmp_path, 2)
    save(tmp_path, 2, model(1), {3: b"three"})
    assert load(tmp_path).history[-1].round == 2
    damage(tmp_path)
    config = RunConfig(resume=str(tmp_path), **config)
    with one_line(ConfigError, reason):  # as `prepare` does
        check_run_folder(config)
        load_checkpoint(config)


def flip(path):
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
