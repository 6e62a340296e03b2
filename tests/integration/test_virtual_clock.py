"""Runs on a virtual clock: late clients are left out as on the wall clock."""

import math

import pytest

from fedavg_app.config import parse_config
from fedavg_app.virtual_clock import make_clock
from tests.support.in_process import run_here
from tests.support.local_grid import LocalGrid
from tests.support.run_folders import assert_model, only_folder, read_history, read_summary

CONFIG = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 10, "fraction-train": 0.5,
    "num-server-rounds": 6, "target": "none", "strategy": "stc", "local-steps": 2,
}  # fmt: skip
LOSSY = "[[class]]\nup = 5\ndown = 20\nlatency = 50\nloss = 0.3\n"
# Two of a hundred such clients are too slow for a second.
SPREAD = "[[class]]\nup = 5\ndown = 5\nlatency = 50\nspread = 1.5\n"


def start(folder, grid=LocalGrid, **changes):
    config = parse_config({**CONFIG, "run-dir": str(folder), **changes})
    run_here(config, grid_type=grid)
    return only_folder(folder)


def test_links_that_lose_nothing_change_the_time_only(tmp_path):
    plain, linked = start(tmp_path / "a"), start(tmp_path / "b", links="4g")
    assert_model(linked, plain)
    for line in read_history(linked)[1:]:
        upload = 8e-6 * line["largest_up"] / 5 + 0.064
        assert line["virtual_seconds"]["upload"] == pytest.approx(upload)
        parts = [line["virtual_seconds"][part] for part in ("download", "computing", "upload")]
        assert line["virtual_seconds"]["round"] == pytest.approx(math.fsum(parts))
    seconds = [line["virtual_seconds"].get("round", 0) for line in read_history(linked)]
    assert read_summary(linked)["virtual-seconds"] == pytest.approx(sum(seconds), abs=1e-3)
    assert "virtual-seconds" not in read_summary(plain)


def test_only_clients_that_are_online_take_part(tmp_path):
    """A day of four seconds, and rounds of about a tenth of one."""
    links = tmp_path / "links.toml"
    links.write_text(f"day = 4.0\n{LOSSY.replace('loss = 0.3', 'online = 0.8')}")
    keys = {"links": str(links), "num-clients": 20, "num-server-rounds": 30}
    config = parse_config({**CONFIG, **keys})
    clock = make_clock(config, [1] * 20, 1.0, whole_data=False)
    asked = []

    class Recording(LocalGrid):
        def push_messages(self, messages):
            sent = list(messages)
            if sent[0].metadata.message_type == "train":
                asked.append({self.partition(message.metadata.dst_node_id) for message in sent})
            return super().push_messages(sent)

    lines = read_history(start(tmp_path / "runs", Recording, **keys))
    elapsed = 0.0
    for chosen, line in zip(asked, lines[1:], strict=True):
        online = set(clock.online(range(20), elapsed))
        assert chosen <= online
        assert len(chosen) == min(10, len(online))
        elapsed += line["virtual_seconds"]["round"]
    assert elapsed > 2
    assert len({len(chosen) for chosen in asked}) > 1


class LosingGrid(LocalGrid):
    """Loses the replies that the clock of the given links loses."""

    links = ""

    def push_messages(self, messages):
        config = parse_config({**CONFIG, "links": self.links, "round-timeout": 1.0})
        clock = make_clock(config, [1] * config.num_clients, 1.0, whole_data=False)
        messages = list(messages)
        ids = super().push_messages(messages)
        for message_id, message in zip(ids, messages, strict=True):
            if message.metadata.message_type == "train":
                server_round = message.content.config_records["config"]["server-round"]
                client = self.partition(message.metadata.dst_node_id)
                if clock.client_time(server_round, client, 5, 0, 0).lost:
                    del self._replies[message_id]
        return ids


def test_lost_replies_are_left_out_as_on_the_wall_clock(tmp_path, monkeypatch):
    """The residuals and the server's partial sums are those of a network that loses replies."""
    links = tmp_path / "links.toml"
    links.write_text(LOSSY)
    monkeypatch.setattr(LosingGrid, "links", str(links))
    virtual = start(tmp_path / "a", links=str(links), **{"round-timeout": 20.0})
    real = start(tmp_path / "b", LosingGrid, **{"round-timeout": 0.3})
    assert_model(virtual, real)
    lost = [len(line["rejected"]) for line in read_history(real)]
    assert [len(line["rejected"]) for line in read_history(virtual)] == lost
    assert sum(lost) >= 3
    for line in read_history(virtual):
        if line["rejected"]:
            assert line["virtual_seconds"]["round"] == 20.0
            assert set(line["rejected"].values()) == {"no reply in time"}


def test_slow_clients_miss_the_timeout_and_over_selection_continues_without_them(tmp_path):
    links = tmp_path / "links.toml"
    links.write_text(SPREAD)
    patient = read_history(start(tmp_path / "a", links=str(links)))
    hurried = read_history(start(tmp_path / "b", links=str(links), **{"round-timeout": 0.3}))
    chosen = read_history(start(tmp_path / "c", links=str(links), **{"over-selection": 0.6}))
    assert not any(line["rejected"] for line in patient + chosen)
    assert any(line["rejected"] for line in hurried)
    for line in hurried[1:]:
        assert (line["virtual_seconds"]["round"] == 0.3) == bool(line["rejected"])
    assert {line["participants"] for line in chosen[1:]} == {8}
    times = [[line["virtual_seconds"].get("round", 0) for line in run] for run in (patient, chosen)]
    slowest = [*map(max, times)]
    assert slowest[1] < slowest[0]
