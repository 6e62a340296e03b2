import pytest

from tasks.data.atomic_file import replacing


def test_file_is_replaced_on_success_and_readable_by_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_failure_leaves_old_file_and_no_temporary_one(tmp_path):
    def write_half_of_it():
        with replacing(path) as temporary:
            temporary.write_text("ne")
            raise OSError("disk full")

    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"):
        write_half_of_it()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
