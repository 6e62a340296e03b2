import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tasks.data import cache as cache_module
from tasks.data.cache import is_cached, load_cached
from tasks.data.dataset import DataError, DataOptions, Split

OPTIONS = DataOptions()


def splits(first_label=0):
    return (Split(np.arange(6).reshape(3, 2), np.arange(first_label, first_label + 3)),) * 2


def test_data_are_parsed_once_and_memory_mapped(cache):
    calls = []

    def parse():
        calls.append(1)
        return splits()

    first = load_cached("a/b", parse, OPTIONS, "made up")
    again = load_cached("a/b", parse, OPTIONS, "made up")
    assert calls == [1]
    assert isinstance(again.train.inputs, np.memmap)
    assert first.fingerprint == again.fingerprint
    assert (again.options, again.description) == (OPTIONS, "made up")


def test_writes_to_mapped_arrays_do_not_change_the_cache(cache):
    load_cached("a", splits, OPTIONS, "").train.inputs[:] = 9
    assert load_cached("a", splits, OPTIONS, "").train.inputs.max() == 5


def test_owners_are_stored_where_there_are_any(cache):
    owned = Split(np.zeros(2), np.zeros(2, np.int64), np.array([4, 7]))
    data = load_cached("a", lambda: (owned, splits()[0]), OPTIONS, "")
    assert data.train.owners.tolist() == [4, 7]
    assert data.test.owners is None


def test_fingerprint_depends_on_arrays(cache):
    fingerprints = {
        load_cached(f"a/{label}", lambda label=label: splits(label), OPTIONS, "").fingerprint
        for label in (0, 1)
    }
    assert len(fingerprints) == 2


def test_concurrent_writers_leave_one_complete_data_set(cache):
    barrier = threading.Barrier(4)

    def parse():
        barrier.wait(10)
        return (Split(np.arange(1000), np.arange(1000)),) * 2

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(load_cached, "race", parse, OPTIONS, "") for _ in range(4)]
        assert len({future.result().fingerprint for future in futures}) == 1
    assert [path.name for path in cache.iterdir()] == ["race"]


def test_data_set_that_another_process_deletes_meanwhile_is_parsed_again(cache, monkeypatch):
    load_cached("a", splits, OPTIONS, "")
    read, times = cache_module._read, []

    def read_after_deletion(folder):
        times.append(1)
        if len(times) == 1:
            shutil.rmtree(folder)
        return read(folder)

    monkeypatch.setattr(cache_module, "_read", read_after_deletion)
    assert len(load_cached("a", splits, OPTIONS, "").train) == 3
    assert len(times) == 2


def test_failed_parse_leaves_nothing_in_cache(cache):
    def parse():
        raise DataError("no such file")

    with pytest.raises(DataError, match="no such file"):
        load_cached("a", parse, OPTIONS, "")
    assert not is_cached("a")
    assert not cache.exists()


def test_all_is_on_the_disk_before_the_data_set_has_its_name(cache, monkeypatch):
    flushed = []

    def flush(path):
        flushed.append((path.name, is_cached("a")))

    monkeypatch.setattr(cache_module, "flush", flush)
    load_cached("a", splits, OPTIONS, "")
    *content, folder, parent = flushed
    files = [
        f"{split}-{array}.npy" for split in ("train", "test") for array in ("inputs", "targets")
    ]
    assert sorted(content) == sorted((name, False) for name in [*files, "meta.json"])
    assert not folder[1]
    assert parent == (cache.name, True)


@pytest.mark.parametrize(("own", "mode"), [(False, 0o755), (True, 0o700)])
def test_other_users_can_read_all_but_a_devices_own_data(cache, own, mode):
    load_cached("a", splits, DataOptions(directory="/some", own=own), "")
    assert (cache / "a").stat().st_mode & 0o777 == mode


def test_cache_that_cannot_be_read_is_reported_with_environment_variable(cache, monkeypatch):
    def stat(self, **_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(DataError, match=r"/a cannot be read \(Permission denied\); set \$FEDAVG"):
        is_cached("a")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("meta.json", b"?"),
        ("meta.json", b"{}"),
        ("train-inputs.npy", b""),
        ("test-targets.npy", b"?"),
    ],
)
def test_damaged_cache_is_reported_with_its_folder(cache, name, content):
    load_cached("mnist/embedded", splits, OPTIONS, "")
    (cache / "mnist" / "embedded" / name).write_bytes(content)
    with pytest.raises(DataError, match=r"cache .*/mnist/embedded is damaged; delete it"):
        load_cached("mnist/embedded", splits, OPTIONS, "")


def test_unwritable_cache_is_reported_with_environment_variable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDAVG_APP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"cannot write the data cache .*\$FEDAVG_APP_CACHE"):
        load_cached("a", splits, OPTIONS, "")
