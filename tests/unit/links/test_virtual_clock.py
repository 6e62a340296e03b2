"""Seconds of links and the virtual clock by hand, devices by distribution, invalid links."""

import logging
import math
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest

from fedavg_app.config import parse_config
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.links import FLEETS, DeviceClass, Devices, Fleet, Link, link_times, load_fleet
from fedavg_app.results.history import RoundMetrics
from fedavg_app.virtual_clock import VirtualClock, make_clock

SLOW = DeviceClass(up=1, down=8, latency=100, computing=3)


def test_clients_time_is_download_computing_and_upload():
    clock = VirtualClock(Fleet(classes=[SLOW]), work=[0.0, 2.0], seed=1)
    time = clock.client_time(1, 1, participants=10, bytes_down=1_000_000, bytes_up=250_000)
    assert time.parts() == pytest.approx({"download": 1.1, "computing": 6.0, "upload": 2.1})
    assert time.total == pytest.approx(9.2)
    assert not time.lost


def test_participants_share_the_servers_link():
    fleet = Fleet(classes=[SLOW], server_up=20, server_down=1)
    clock = VirtualClock(fleet, work=[0.0], seed=1)
    time = clock.client_time(1, 0, participants=5, bytes_down=1_000_000, bytes_up=25_000)
    assert time.download == pytest.approx(8 / 4 + 0.1)
    assert time.upload == pytest.approx(0.2 / 0.2 + 0.1)


def test_devices_are_online_in_one_piece_of_each_day_most_of_them_at_night():
    """A third of the day from a time around 22:00; the share at an hour is the normal's."""
    fleet = Fleet(classes=[DeviceClass(up=1, down=1, online=1 / 3)], day=24.0)
    count = 20_000
    clock = VirtualClock(fleet, [0.0] * count, seed=2)
    present = np.zeros((48, count), bool)
    for hour in range(48):
        present[hour, list(clock.online(range(count), hour))] = True
    assert np.array_equal(present[:24], present[24:])
    hours = present[:24].sum(axis=0)
    assert set(hours) == {8}
    assert (np.diff(present[:24].astype(int), axis=0, append=present[:1]) == 1).sum() == count
    for hour in (2, 12, 22):  # it began at most 8 hours ago
        normal = NormalDist(22, 3)
        share = sum(normal.cdf(hour + day) - normal.cdf(hour + day - 8) for day in (-24, 0, 24))
        assert present[hour].mean() == pytest.approx(share, abs=5 * math.sqrt(0.25 / count))


def test_round_without_any_device_online_is_one_line():
    fleet = Fleet(classes=[DeviceClass(up=1, down=1, online=0.01)])
    with pytest.raises(RunError, match=r"^no client is on-line after 43200 virtual seconds; give"):
        VirtualClock(fleet, [0.0, 0.0], seed=2).online([0, 1], 43_200)


def test_devices_follow_shares_and_spread():
    fleet = Fleet(
        classes=[
            DeviceClass(up=1, down=10, share=1, computing=5, spread=0.5),
            DeviceClass(up=100, down=100, share=3),
        ]
    )
    devices = [*Devices(fleet, 20_000, seed=1)]
    spread = [device for device in devices if device.up != 100]
    assert len(spread) / len(devices) == pytest.approx(0.25, abs=0.01)
    for values, median in (
        ([device.up for device in spread], 1),
        ([device.down for device in spread], 10),
        ([device.computing for device in spread], 5),
    ):
        logarithms = np.log(np.array(values) / median)
        assert logarithms.mean() == pytest.approx(0, abs=0.03)
        assert logarithms.std() == pytest.approx(0.5, abs=0.03)
    assert [*Devices(fleet, 20, seed=1)] == [*Devices(fleet, 20, seed=1)]
    assert [*Devices(fleet, 20, seed=1)] != [*Devices(fleet, 20, seed=2)]


def test_share_of_replies_is_lost():
    fleet = Fleet(classes=[DeviceClass(up=1, down=1, loss=0.1)])
    clock = VirtualClock(fleet, work=[0.0] * 100, seed=1)
    turns = product(range(1, 201), range(100))
    lost = [clock.client_time(number, client, 1, 0, 0).lost for number, client in turns]
    assert np.mean(lost) == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize(
    ("changes", "whole_data", "examples"),
    [
        ({"local-epochs": 5}, False, 5 * 600),
        ({"local-steps": 7, "batch-size": 20}, False, 7 * 20),
        ({"local-steps": 7, "batch-size": 0}, False, 7 * 600),
        ({"local-steps": 7, "batch-size": 1000}, False, 7 * 600),
        ({"local-epochs": 5}, True, 600),
    ],
)
def test_computing_counts_the_examples_of_the_local_work(changes, whole_data, examples):
    config = parse_config({"links": "4g", "num-clients": 1, **changes})
    clock = make_clock(config, [600], 0.01, whole_data=whole_data)
    assert clock.client_time(1, 0, 1, 0, 0).computing == pytest.approx(0.01 * examples)


def test_links_are_read_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("server-up = 1000\n[[class]]\nname = 'home'\nup = 5\ndown = 50\nloss = 0.1\n")
    assert load_fleet(str(path)) == Fleet(
        classes=[DeviceClass(name="home", up=5, down=50, loss=0.1)], server_up=1000
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[class]]\nup = 5\n", "class.0.down: Field required"),
        ("[[class]]\nup = 0\ndown = 1\n", "class.0.up: Input should be greater than 0"),
        ("[[class]]\nup = 5\ndown = 1\nlos = 0.1\n", "class.0.los: Extra inputs are not permitted"),
        ("class = []\n", "class: List should have at least 1 item"),
        ("up = 5 down = 3", "give fibre, cable"),
    ],
)
def test_invalid_file_of_links_is_refused_with_the_key(tmp_path, text, problem):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_fleet(str(path))


def test_every_preset_makes_a_clock_and_losses_need_a_timeout():
    for name, fleet in FLEETS.items():
        config = parse_config({"links": name, "num-clients": 3, "round-timeout": 60.0})
        clock = make_clock(config, [10] * 3, 1e-3, whole_data=False)
        assert math.isfinite(clock.client_time(1, 0, 3, 1000, 1000).total)
        if any(kind.loss for kind in fleet.classes):
            endless = config.model_copy(update={"round_timeout": 0.0})
            with pytest.raises(ConfigError, match="these links lose replies"):
                make_clock(endless, [10], 1e-3, whole_data=False)


def test_task_without_a_computing_time_says_so(caplog):
    config = parse_config({"links": "4g", "num-clients": 1})
    with caplog.at_level(logging.WARNING):
        make_clock(config, [600], 0.0, whole_data=False)
    assert "give seconds-per-example" in caplog.text


def test_a_round_is_two_round_trips_and_both_transfers():
    link = Link(up=10, down=50, latency=50)
    assert link.seconds(1_250_000, 6_250_000) == pytest.approx(0.1 + 1.0 + 1.0)
    assert link.seconds(0, 0, rounds=3) == pytest.approx(0.3)


def test_every_exchange_of_a_round_takes_two_round_trips():
    history = [RoundMetrics(1, 2, largest_up=1_000_000, largest_down=500_000, exchanges=4)]
    assert link_times(history, Link(up=8, down=8, latency=100)) == pytest.approx([1.5 + 4 * 0.2])


def test_a_round_waits_for_its_largest_messages():
    link = Link(up=8, down=8, latency=0)
    history = [
        RoundMetrics(0),
        RoundMetrics(1, 2, bytes_up=3_000_000, bytes_down=2_000_000,
                     largest_up=2_000_000, largest_down=1_000_000),
        RoundMetrics(2, 2, bytes_up=3_000_000, bytes_down=2_000_000),  # of an earlier version
    ]  # fmt: skip
    assert link_times(history, link) == pytest.approx([0.0, 3.0, 5.5])
