import pytest

from tasks.data.cache import CACHE_VARIABLE
from tests.support import idx_files


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the folder of an empty data cache, which this test alone uses."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def mnist_files(tmp_path):
    """Return a folder with four small gzipped IDX files, and their arrays by file name."""
    folder = tmp_path / "files"
    folder.mkdir()
    return folder, idx_files.write(folder)
