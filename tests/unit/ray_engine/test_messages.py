"""Memory that was freed is used again, counted by Linux as page faults of a process of its own."""

import sys

import pytest

from tests.support.processes import succeed

COUNT = """
import resource
from fedavg_app.ray_engine.messages import keep_freed_memory
keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    before = faults()
    b"x" * 2**26
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_memory_needs_no_new_pages():
    found = succeed([sys.executable, "-c", COUNT])
    assert int(found.stdout) < 100  # of the 16384 pages
