import importlib
import itertools
import sys
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


MODULE = """
import functools
import numpy as np
from tasks.data.dataset import Split

def parse(value=VALUE):
    return (Split(np.full(2, value), np.arange(2)),) * 2

class Reader:
    def parse(self):
        return parse()
    __call__ = parse

@functools.cache
def decorated():
    return parse()

WAYS = {
    "function": parse, "lambda": lambda: parse(), "partial": functools.partial(parse, VALUE),
    "method": Reader().parse, "object": Reader(), "decorated": decorated,
    "partial of a method": functools.partial(functools.partial(Reader.parse), Reader()),
}
"""
WAYS = ("function", "lambda", "partial", "method", "object", "decorated", "partial of a method")


@pytest.fixture
def loaded(tmp_path, monkeypatch, cache):
    """Return what writes a module that parses a value, imports it, and loads by it."""
    del cache
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(value, way="function", name="a/b", **keys):
        path = tmp_path / "parsing.py"
        path.write_text(MODULE.replace("VALUE", str(value)))
        spec = importlib.util.spec_from_file_location("parsing", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "parsing", module)
        spec.loader.exec_module(module)
        return load_cached(name, module.WAYS[way], OPTIONS, "", **keys).train.inputs[0]

    return load


@pytest.mark.parametrize("way", WAYS)
def test_an_edited_file_is_parsed_again_and_no_stale_data_are_read(loaded, cache, way):
    for value in (1, 2, 3, 1):
        assert loaded(value, way) == value
    assert len(list(cache.rglob("*.safetensors"))) == 3


def test_another_name_or_version_is_parsed_again(cache):
    """A helper in another file has changed, which the cache cannot see."""
    values = itertools.count()

    def parse():
        return (Split(np.full(2, next(values)), np.arange(2)),) * 2

    keys = [{}, {"version": 2}, {"name": "c"}, {"version": 1}, {"name": "c", "version": 2}]
    found = [
        load_cached(**{"name": "a", "parse": parse, "options": OPTIONS, "description": "", **key})
        for key in keys
    ]
    assert [data.train.inputs[0] for data in found] == [0, 1, 2, 0, 3]


@pytest.mark.parametrize("source", ["", "lambda: 1"])
def test_function_that_no_file_defines_is_refused(cache, source):
    parse = eval(source or "divmod")
    with pytest.raises(DataError, match=r"file that defines (divmod|<lambda>), and there is none"):
        load_cached("a", parse, OPTIONS, "")


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
    with pytest.raises(DataError, match=r"the data cache .* cannot be loaded .*\$FEDAVG_APP_CACHE"):
        load_cached("a", splits, OPTIONS, "")


def test_key_of_a_folder_changes_with_its_files(tmp_path):
    (tmp_path / "batch").write_bytes(b"one")
    before = files_key([tmp_path])
    assert files_key([tmp_path]) == before
    (tmp_path / "batch").write_bytes(b"two, written in place")
    assert files_key([tmp_path]) != before
