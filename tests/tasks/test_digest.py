"""Digests of files against hashlib's own, through whatever may happen to a file."""

import hashlib
import json
import os
import time

import pytest

from tasks.data import digest, store


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def later(monkeypatch):
    """An hour has gone by since the files were written."""
    now = time.time_ns
    monkeypatch.setattr(digest.time, "time_ns", lambda: now() + 3600 * 10**9)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data.gz"
    path.write_bytes(b"what it was")
    return path


def plain(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_in_place(path):
    path.write_bytes(b"as long now")


def replace(path):
    other = path.with_name("other")
    other.write_bytes(b"as long now")
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
def test_a_changed_file_is_noticed(cache, later, file, change):
    assert digest.sha256(file) == plain(file)
    time.sleep(0.02)  # more than a tick of the file system's clock
    before = plain(file)
    change(file)
    assert digest.sha256(file) == plain(file) != before


def test_a_file_that_stays_is_read_once(cache, later, file, monkeypatch):
    found = digest.sha256(file)
    assert found == plain(file)
    with monkeypatch.context() as patch:
        patch.delattr(hashlib, "file_digest")
        assert digest.sha256(file) == found
    write_in_place(file)
    monkeypatch.delattr(hashlib, "file_digest")
    with pytest.raises(AttributeError):
        digest.sha256(file)


def test_a_file_written_a_moment_ago_is_not_trusted(cache, file):
    """It could be overwritten within one tick of the clock, all its figures the same."""
    digest.sha256(file)
    assert not cache.exists()


def test_the_other_file_of_the_same_name_is_another(cache, later, file, tmp_path):
    digest.sha256(file)
    (tmp_path / "folder").mkdir()
    other = tmp_path / "folder" / file.name
    other.write_bytes(b"of another folder")
    assert digest.sha256(other) == plain(other) != digest.sha256(file)


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"state": null, "sha256": "0"}'])
def test_a_damaged_note_is_written_anew(cache, later, file, damage):
    digest.sha256(file)
    (note,) = (cache / "digests").iterdir()
    note.write_text(damage)
    assert digest.sha256(file) == plain(file)
    assert json.loads(note.read_text())["sha256"] == plain(file)


def test_a_cache_that_cannot_be_written_does_no_harm(cache, later, file):
    cache.write_text("no directory")
    assert digest.sha256(file) == plain(file)
