import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tasks.data.cache import files_key, load_cached
from tasks.data.dataset import DataError, DataOptions, Split

OPTIONS = DataOptions()


def splits():
    return (Split(np.arange(6).reshape(3, 2), np.arange(3)),) * 2


def test_data_are_parsed_once_and_memory_mapped_copy_on_write(cache):
    calls = itertools.count()

    def parse():
        next(calls)
        return splits()

    first = load_cached("a/b", parse, OPTIONS, "made up")
    again = load_cached("a/b", parse, OPTIONS, "made up")
    (file,) = (cache / "a").glob("b-*.safetensors")
    assert next(calls) == 1
    assert first.fingerprint == again.fingerprint
    assert (again.options, again.description) == (OPTIONS, "made up")
    address, path = again.train.inputs.ctypes.data, str(file)
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [tuple(int(end, 16) for end in words[0].split("-")) for words in maps
             if words[-1] == path and words[1].endswith("p")]  # fmt: skip
    assert any(start <= address < end for start, end in spans)
    again.train.inputs[0, 0] = 9  # torch requires arrays that can be written
    assert load_cached("a/b", parse, OPTIONS, "").train.inputs[0, 0] == 0


def test_concurrent_writers_leave_one_complete_data_set(cache):
    barrier = threading.Barrier(4)

    def parse():
        barrier.wait(10)
        return (Split(np.arange(1000), np.arange(1000)),) * 2

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(load_cached, "race", parse, OPTIONS, "") for _ in range(4)]
        assert len({future.result().fingerprint for future in futures}) == 1
    assert len(list(cache.iterdir())) == 1


def test_task_with_the_name_of_another_gets_its_own_data(cache):
    """A copied and edited task would otherwise train on the data of the original."""
    theirs = load_cached("digits/v1", splits, OPTIONS, "")
    other = (Split(np.zeros((2, 2)), np.arange(2)),) * 2
    ours = load_cached("digits/v1", lambda: other, OPTIONS, "")
    assert (len(theirs.train), len(ours.train)) == (3, 2)


def test_name_with_a_version_is_the_name_of_the_file(cache):
    load_cached("a/b", splits, OPTIONS, "", versioned=True)
    assert (cache / "a" / "b.safetensors").is_file()


@pytest.mark.parametrize(("own", "mode"), [(False, 0o055), (True, 0)])
def test_other_users_can_read_all_but_a_devices_own_data(cache, own, mode):
    load_cached("a/b", splits, DataOptions(directory="/some", own=own), "")
    assert (cache / "a").stat().st_mode & 0o077 == mode


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_damaged_cache_is_reported_with_its_file(cache, size):
    load_cached("mnist/embedded", splits, OPTIONS, "")
    (path,) = (cache / "mnist").iterdir()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=rf"cache {path} .*; delete it"):
        load_cached("mnist/embedded", splits, OPTIONS, "")


def test_unwritable_cache_is_reported_with_environment_variable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDAVG_APP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"cannot write the data cache .*\$FEDAVG_APP_CACHE"):
        load_cached("a", splits, OPTIONS, "")


def test_key_of_a_folder_changes_with_its_files(tmp_path):
    (tmp_path / "batch").write_bytes(b"one")
    before = files_key([tmp_path])
    assert files_key([tmp_path]) == before
    (tmp_path / "batch").write_bytes(b"two, written in place")
    assert files_key([tmp_path]) != before
