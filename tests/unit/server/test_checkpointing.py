import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord

import strategies
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.flower_internals import BaseGrid
from fedavg_app.server.checkpointing import Checkpointer, has_checkpoint, load_checkpoint
from fedavg_app.server.metrics import RoundMetrics


class PowerLossError(BaseException):
    """The process dies."""


def write_run(folder, last_round):
    """Write the config and the history of a run, without a checkpoint."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(RunConfig().model_dump(by_alias=True)))
    lines = [json.dumps(RoundMetrics(number).as_json()) for number in range(last_round + 1)]
    (folder / "history.jsonl").write_text("\n".join(lines))


def checkpointer(folder, every=1, strategy=None, grid=None):
    strategy = strategies.build("fedavg", {}) if strategy is None else strategy
    return Checkpointer(folder, every, "data", strategy, grid)


def load(folder):
    return load_checkpoint(RunConfig(resume=str(folder)))


def model(value):
    return ArrayRecord({"w": ArrayRecord([np.full(3, value, np.float32)])["0"]})


OPERATIONS = ("mkdir", "write_bytes", "write_text", "chmod", "replace", "unlink")


def test_power_loss_at_any_file_operation_leaves_this_checkpoint_or_the_one_before(
    tmp_path, monkeypatch
):
    """Every operation on files is the last one once, before and after it has happened."""
    originals = {name: getattr(Path, name) for name in OPERATIONS}
    models = [model(value) for value in range(3)]
    states = [{0: b"zero", 1: b"one"}, {1: b"one more", 2: b"two"}]
    rounds = set()
    for crash in range(1000):
        folder = tmp_path / str(crash)
        write_run(folder, 2)
        saved = checkpointer(folder, strategy=strategies.build("stc", {}))
        saved.save(1, models[1], states[0])
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
            saved.save(2, models[2], states[1])
            finished = True
        except PowerLossError:
            pass
        for name, original in originals.items():
            monkeypatch.setattr(Path, name, original)
        state = load(folder)
        found = state.history[-1].round
        rounds.add(found)
        assert state.client_states == (states[0] if found == 1 else states[0] | states[1])
        assert np.array_equal(state.model["w"].numpy(), models[found]["w"].numpy())
        # What a crash left over is gone with the next checkpoint.
        checkpointer(folder).save(3, models[0], {})
        assert len(list((folder / "checkpoint").iterdir())) == 1 + 1 + len(state.client_states)
        if finished:
            break
    assert rounds == {1, 2}
    assert crash > 5


def test_arrays_that_flower_has_sent_can_be_saved(tmp_path):
    """Cut up for sending, an array holds views of its bytes, which cannot be pickled."""
    arrays = ArrayRecord([np.arange(5, dtype=np.float32)])
    chunks = [child for array in arrays.children.values() for child in array.children.values()]
    assert chunks
    write_run(tmp_path, 0)
    checkpointer(tmp_path).save(0, arrays, {})
    assert np.array_equal(load(tmp_path).model["0"].numpy(), arrays["0"].numpy())


def test_client_that_lost_its_state_has_none_in_the_next_checkpoint(tmp_path):
    write_run(tmp_path, 2)
    saved = checkpointer(tmp_path)
    saved.save(1, ArrayRecord(), {3: b"three", 4: b"four"})
    saved.save(2, ArrayRecord(), {3: None})
    assert load(tmp_path).client_states == {4: b"four"}


def test_state_that_has_not_changed_is_kept_by_a_checkpointer_of_another_process(tmp_path):
    write_run(tmp_path, 2)
    checkpointer(tmp_path).save(1, ArrayRecord(), {3: b"three", 4: b"four"})
    checkpointer(tmp_path).save(2, ArrayRecord(), {4: b"four more"})
    assert load(tmp_path).client_states == {3: b"three", 4: b"four more"}


class StateGrid(BaseGrid):
    def __init__(self):
        self.changed = []

    def get_node_ids(self):
        return []

    def push_messages(self, messages):
        return []

    def pull_messages(self, message_ids):
        return []

    def changed_states(self):
        self.changed.append(b"state of save %d" % len(self.changed))
        return {7: self.changed[-1]}

    def restore_states(self, states):
        raise AssertionError(states)


def test_callback_saves_every_few_rounds_with_the_grids_client_states(tmp_path):
    write_run(tmp_path, 5)
    grid = StateGrid()
    saved = checkpointer(tmp_path, every=2, grid=grid)
    for number in range(6):
        saved.on_round_end(RoundMetrics(number), model(number))
    state = load(tmp_path)
    assert len(grid.changed) == 3  # rounds 0, 2 and 4
    assert [metrics.round for metrics in state.history] == [0, 1, 2, 3, 4]
    assert state.model["w"].numpy()[0] == 4
    assert state.client_states == {7: b"state of save 2"}
    assert state.data == "data"


def test_strategy_that_cannot_be_pickled_ends_the_run_with_one_line(tmp_path):
    strategy = strategies.build("fedavg", {})
    strategy.file = (tmp_path / "open").open("w")
    with pytest.raises(RunError, match=r"cannot write the checkpoint .*: cannot pickle") as caught:
        checkpointer(tmp_path, strategy=strategy).on_round_end(RoundMetrics(0), ArrayRecord())
    strategy.file.close()
    assert "\n" not in str(caught.value)
    assert not has_checkpoint(tmp_path)


def test_checkpoint_of_another_version_is_refused(tmp_path):
    write_run(tmp_path, 0)
    checkpointer(tmp_path).save(0, ArrayRecord(), {})
    manifest = tmp_path / "checkpoint" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 1}))
    with pytest.raises(ConfigError, match=r"cannot be read \(it is of another version"):
        load(tmp_path)
