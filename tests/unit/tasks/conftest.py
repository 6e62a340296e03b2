"""The fixture of all tests of tasks and data sets."""

import pytest

from tasks.data.cache import CACHE_VARIABLE


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the folder of an empty data cache, which this test alone uses."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"
