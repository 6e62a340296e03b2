"""The fixture of the tests that read IDX files."""

import pytest

from tests.support import idx_files


@pytest.fixture
def mnist_files(tmp_path):
    """Return a folder with four small gzipped IDX files, and their arrays by file name."""
    folder = tmp_path / "files"
    folder.mkdir()
    return folder, idx_files.write(folder)
