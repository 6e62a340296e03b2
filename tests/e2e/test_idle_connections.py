"""5,000 idle connections do not change a run."""

import resource
import subprocess
import sys

import pytest

from tests.support.deployment import Deployment
from tests.support.run_folders import assert_model, read_history

pytestmark = pytest.mark.long

NUMBER = 5000
# Opens them again when they are closed.
FLOOD = """
import resource, select, socket, sys, time
port, number = map(int, sys.argv[1:])
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
poll, held = select.epoll(), {}
while True:
    while len(held) < number:
        opened = socket.create_connection(("127.0.0.1", port), timeout=60)
        held[opened.fileno()] = opened
        poll.register(opened, select.EPOLLIN | select.EPOLLHUP)
    print("all", flush=True)
    for descriptor, _ in poll.poll(1):
        held.pop(descriptor).close()
"""


@pytest.fixture
def few_files():
    """Give new processes the limit that most systems have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard <= 2 * NUMBER:
        pytest.skip(f"needs {2 * NUMBER} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(900)
def test_run_is_the_same_with_idle_connections(tmp_path, few_files):
    keys = {"num-server-rounds": 3, "round-timeout": 120}
    with Deployment(tmp_path / "deployment", 3) as deployment:
        alone = deployment.train(tmp_path / "alone", **keys)
        words = [sys.executable, "-c", FLOOD, str(deployment.port), str(NUMBER)]
        flood = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert flood.stdout.readline() == "all\n"
            beside = deployment.train(tmp_path / "beside", **keys)
            assert flood.poll() is None
        finally:
            flood.kill()
            flood.communicate()
    assert_model(beside, alone)
    assert not any(line["rejected"] for line in read_history(beside))
