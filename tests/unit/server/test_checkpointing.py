import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord

import strategies
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.flower_internals import BaseGrid
from fedavg_app.server.checkpoint_manifest import has_checkpoint, sealed
from fedavg_app.server.checkpointing import Checkpointer, load_checkpoint
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
    config = RunConfig(checkpoint_every=every)
    return Checkpointer(folder, config, "data", strategy, grid)


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
    change_manifest(tmp_path, version=2)
    with pytest.raises(ConfigError, match=r"cannot be read \(it is of another version"):
        load(tmp_path)


def change_manifest(folder, seal=lambda content: content, **entries):
    """Set entries of the manifest; None deletes one."""
    path = folder / "checkpoint" / "manifest.json"
    content = json.loads(path.read_text()) | entries
    content = {key: value for key, value in content.items() if value is not None}
    path.write_text(json.dumps(seal(content)))


def damage_config(folder):
    (folder / "config.json").write_text(json.dumps(RunConfig(seed=7).model_dump(by_alias=True)))


def damage_history(folder):
    path = folder / "history.jsonl"
    path.write_text(path.read_text().replace('"participants": 0', '"participants": 1', 1))


@pytest.mark.parametrize(
    ("damage", "config", "reason"),
    [
        (damage_config, {"seed": 7}, "config.json has changed: seed = 7 was 1"),
        (damage_history, {}, "history.jsonl has changed"),
        (lambda folder: change_manifest(folder, round=1), {}, "manifest.json has changed"),
        (lambda folder: change_manifest(folder, data="x"), {}, "manifest.json has changed"),
        (lambda folder: change_manifest(folder, data=None), {}, "manifest.json has changed"),
        (lambda folder: change_manifest(folder, sealed, data=None), {}, "no entry 'data'"),
        (lambda folder: change_manifest(folder, sealed, files={}), {}, "Ran out of input"),
        (lambda folder: (folder / "checkpoint" / "manifest.json").write_text("[]"), {}, "no table"),
    ],
)
def test_changed_run_is_refused_in_one_line(tmp_path, damage, config, reason):
    write_run(tmp_path, 2)
    checkpointer(tmp_path).save(2, model(1), {})
    assert load(tmp_path).history[-1].round == 2
    damage(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_checkpoint(RunConfig(resume=str(tmp_path), **config))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_run_can_be_resumed_with_other_values_of_the_keys_that_are_free(tmp_path):
    write_run(tmp_path, 2)
    checkpointer(tmp_path).save(2, model(1), {})
    changed = RunConfig(num_server_rounds=999).model_dump(by_alias=True)
    (tmp_path / "config.json").write_text(json.dumps(changed))
    assert load(tmp_path).history[-1].round == 2


def test_files_and_names_are_on_the_disk_before_the_manifest_names_them(tmp_path, monkeypatch):
    """What is flushed, and what is renamed, in the order in which it happens."""
    events = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(handle):
        events.append(("flush", Path(f"/proc/self/fd/{handle}").readlink().name.lstrip(".")))
        real_fsync(handle)

    def replace(self, target):
        events.append(("name", target.name))
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_run(tmp_path, 1)
    checkpointer(tmp_path).save(1, model(1), {3: b"three"})
    order = [(what, name.split("-")[0]) for what, name in events]
    assert order == [
        ("flush", "3.1.client"), ("name", "3.1.client"),
        ("flush", "1.server"), ("name", "1.server"),
        ("flush", "history.jsonl"), ("flush", "checkpoint"),
        ("flush", "manifest.json"), ("name", "manifest.json"), ("flush", "checkpoint"),
    ]  # fmt: skip


def test_full_disk_leaves_the_checkpoint_before_and_none_of_the_new_files(tmp_path, monkeypatch):
    write_run(tmp_path, 2)
    saved = checkpointer(tmp_path)
    saved.save(1, model(1), {3: b"three"})
    before = sorted(path.name for path in (tmp_path / "checkpoint").iterdir())
    original = Path.write_bytes

    def write_bytes(self, content):
        if ".server" in self.name:
            original(self, content[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(self, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(RunError, match=r"cannot write the checkpoint .*No space left") as caught:
        saved.save(2, model(2), {3: b"three more"})
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == before
    assert load(tmp_path).client_states == {3: b"three"}
    monkeypatch.undo()
    saved.save(2, model(2), {3: b"three more"})
    assert load(tmp_path).client_states == {3: b"three more"}
