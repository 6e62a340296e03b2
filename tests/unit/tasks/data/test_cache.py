import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tasks.data.cache import load_cached
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


def test_concurrent_writers_leave_one_complete_data_set(cache):
    barrier = threading.Barrier(4)

    def parse():
        barrier.wait(10)
        return (Split(np.arange(1000), np.arange(1000)),) * 2

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(load_cached, "race", parse, OPTIONS, "") for _ in range(4)]
        assert len({future.result().fingerprint for future in futures}) == 1
    assert [path.name for path in cache.iterdir()] == ["race"]


@pytest.mark.parametrize(("own", "mode"), [(False, 0o755), (True, 0o700)])
def test_other_users_can_read_all_but_a_devices_own_data(cache, own, mode):
    load_cached("a", splits, DataOptions(directory="/some", own=own), "")
    assert (cache / "a").stat().st_mode & 0o777 == mode


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
