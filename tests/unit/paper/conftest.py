"""The fixture of the tests of tables, curves and the report."""

import pytest

from tests.support.made_up_results import MadeUpResults


@pytest.fixture
def results(tmp_path):
    return MadeUpResults(tmp_path)
