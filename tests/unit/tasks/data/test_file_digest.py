"""Digests of files against those of hashlib, after any kind of change to a file."""

import hashlib
import json
import os
import time

import pytest

from tasks.data import file_digest
from tasks.data.file_digest import sha256


@pytest.fixture
def later(monkeypatch):
    """Set the clock to an hour after the files were written."""
    now = time.time_ns
    monkeypatch.setattr(file_digest.time, "time_ns", lambda: now() + 3600 * 10**9)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data.gz"
    path.write_bytes(b"old content")
    return path


def expected(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_in_place(path):
    path.write_bytes(b"new content")


def replace(path):
    other = path.with_name("other")
    other.write_bytes(b"new content")
    other.replace(path)


def append(path):
    path.write_bytes(path.read_bytes() + b"!")


def in_place_with_the_old_time(path):
    before = path.stat()
    write_in_place(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_with_the_old_time(path):
    before = path.stat()
    replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = [
    write_in_place, replace, append, in_place_with_the_old_time, replace_with_the_old_time,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changed_file_has_new_digest(cache, later, file, change):
    assert sha256(file) == expected(file)
    time.sleep(0.02)  # more than a tick of the file system's clock
    before = expected(file)
    change(file)
    assert sha256(file) == expected(file) != before


def test_unchanged_file_is_read_once(cache, later, file, monkeypatch):
    found = sha256(file)
    assert found == expected(file)
    with monkeypatch.context() as patch:
        patch.delattr(hashlib, "file_digest")
        assert sha256(file) == found
    write_in_place(file)
    monkeypatch.delattr(hashlib, "file_digest")
    with pytest.raises(AttributeError):
        sha256(file)


def test_digest_of_recently_written_file_is_not_cached(cache, file):
    """The file could change again within one tick of the clock, with the same metadata."""
    sha256(file)
    assert not cache.exists()


def test_file_of_same_name_in_another_folder_has_its_own_digest(cache, later, file, tmp_path):
    sha256(file)
    (tmp_path / "folder").mkdir()
    other = tmp_path / "folder" / file.name
    other.write_bytes(b"other content")
    assert sha256(other) == expected(other) != sha256(file)


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"state": null, "sha256": "0"}'])
def test_damaged_cache_entry_is_replaced(cache, later, file, damage):
    sha256(file)
    (entry,) = (cache / "digests").iterdir()
    entry.write_text(damage)
    assert sha256(file) == expected(file)
    assert json.loads(entry.read_text())["sha256"] == expected(file)


def test_unwritable_cache_is_ignored(cache, later, file):
    cache.write_text("not a directory")
    assert sha256(file) == expected(file)
