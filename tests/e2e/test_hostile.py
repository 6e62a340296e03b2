"""A device that attacks with all that it sends, over TLS: it changes no bit and stalls nothing.

Another device claims the partition of the honest device.
"""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import hostile
from tests.support.deployment import Deployment
from tests.support.in_process import model_without
from tests.support.run_folders import assert_model, read_history

# The honest device needs seconds; Flower's grid would wait three minutes for the dying upload,
# and hours for the trickling upload.
ROUND_TIMEOUT, SLACK = 60, 60
MAX_RESIDENT_KILOBYTES = 2_000_000  # a ServerApp has about 800,000; the attacks, gigabytes
MAX_STORED_BYTES = 5_000_000  # the app's bundle and the run; one chunk of a reply is larger

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(tmp_path_factory.mktemp("deployment"), 1) as started:
        started.add_hostile_node(1, hostile)
        started.add_node(2, "partition-id=0 num-partitions=2")
        started.wait_for(lambda: started.online() == 3)
        yield started


def stored_bytes(database):
    """Return what the SuperLink still holds; pages that it has freed are filled again."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


class PeakMemory:
    """Watches the memory of ServerApps that are started with this home; a context manager."""

    def __init__(self, home):
        self._mark = f"FLWR_HOME={home}".encode()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.kilobytes = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    def _watch(self):
        while not self._done.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    ours = self._mark in (process / "environ").read_bytes()
                    if ours and b"flwr-serverapp" in (process / "cmdline").read_bytes():
                        status = (process / "status").read_text()
                        peak = int(status.partition("VmHWM:")[2].split()[0])
                        self.kilobytes = max(self.kilobytes, peak)
                except (OSError, IndexError):
                    continue


@pytest.mark.parametrize(
    "changes",
    [{"strategy": "fedavg"}, {"strategy": "stc", "local-steps": 1, "batch-size": 20}],
    ids=["fedavg", "stc"],
)
def test_every_attack_is_refused_in_time_and_the_model_is_the_honest_devices(
    deployment, tmp_path, changes
):
    attacks = hostile.attacks(compressed=changes["strategy"] == "stc")
    changes = {**changes, "seed": 5, "num-server-rounds": len(attacks), "num-clients": 2}
    with PeakMemory(deployment.folder / "home-superlink") as memory:
        folder = deployment.train(
            tmp_path / "deployed", seconds=1200,
            **{"round-timeout": ROUND_TIMEOUT, **changes},
        )  # fmt: skip
    rounds = read_history(folder)[1:]
    assert len(rounds) == len(attacks)
    refused = [why for why in rounds[0]["rejected"].values() if "has partition-id=0 alr" in why]
    assert len(refused) == 1
    for (attack, expected), record in zip(attacks, rounds, strict=True):
        reasons = [why for why in record["rejected"].values() if why not in refused]
        assert len(reasons) == 1, (attack.__name__, reasons)
        if changes["strategy"] == "stc":
            expected = hostile.REASONS_COMPRESSED.get(attack, expected)
        assert expected in reasons[0], (attack.__name__, reasons)
        assert "\n" not in reasons[0]
        assert record["seconds"] < ROUND_TIMEOUT + SLACK, attack.__name__
    assert_model(folder, model_without([1], tmp_path, **changes))
    assert 0 < memory.kilobytes < MAX_RESIDENT_KILOBYTES
    assert stored_bytes(deployment.folder / "certificates" / "superlink.db") < MAX_STORED_BYTES
