"""A device that attacks with all that it sends, over TLS: it changes no bit and stalls nothing.

Another device claims the partition of the honest device.
"""

import sqlite3
from contextlib import closing, suppress

import psutil
import pytest

from tests.support import hostile
from tests.support.deployment import Deployment
from tests.support.in_process import model_without
from tests.support.run_folders import assert_model, read_history
from tests.support.usage import repeatedly

# The honest device needs seconds; Flower's grid would wait three minutes for the dying upload,
# and hours for the trickling upload.
ROUND_TIMEOUT, SLACK = 60, 60
MAX_RESIDENT_BYTES = 2e9  # a ServerApp has about 0.8 GB; the attacks, gigabytes
MAX_STORED_BYTES = 5_000_000  # the app's bundle and the run; one chunk of a reply is larger

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(tmp_path_factory.mktemp("deployment"), 1) as started:
        started.add_hostile_node(1, hostile)
        started.add_node(2, "partition-id=0 num-partitions=2")
        started.wait_for_devices(3)
        yield started


def stored_bytes(database):
    """Return what the SuperLink still holds; pages that it has freed are filled again."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


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
    resident = []

    def note_memory_of_server_apps():
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if "flwr-serverapp" in " ".join(process.cmdline()):
                    resident.append(process.memory_info().rss)

    with repeatedly(note_memory_of_server_apps, 0.2):
        folder = deployment.train(
            tmp_path / "deployed", seconds=1200,
            **{"round-timeout": ROUND_TIMEOUT, **changes},
        )  # fmt: skip
    rounds = read_history(folder)[1:]
    assert len(rounds) == len(attacks)
    refused = [why for why in rounds[0]["rejected"].values() if "has partition-id=0 alr" in why]
    assert len(refused) == 1
    for number, ((attack, expected), record) in enumerate(zip(attacks, rounds, strict=True)):
        reasons = [why for why in record["rejected"].values() if why not in refused]
        assert len(reasons) == 1, (number, reasons)
        if changes["strategy"] == "stc":
            expected = hostile.REASONS_COMPRESSED.get(attack, expected)
        assert expected in reasons[0], (number, reasons)
        assert "\n" not in reasons[0]
        assert record["seconds"] < ROUND_TIMEOUT + SLACK, number
    assert_model(folder, model_without([1], tmp_path, **changes))
    assert 0 < max(resident) < MAX_RESIDENT_BYTES
    assert stored_bytes(deployment.folder / "certificates" / "superlink.db") < MAX_STORED_BYTES
