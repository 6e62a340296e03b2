"""Runs end before the round that would exceed their budget, and resume with a larger budget."""

import pytest

from fedavg_app.errors import ConfigError
from tests.integration.test_resumed_runs import history, start
from tests.support.run_folders import assert_model, only_folder, read_history, read_summary

KEYS = {"strategy": "stc", "local-steps": 1, "momentum": 0.9, "evaluate-every": 1}


def counted(folder):
    return [line["total"] for line in read_history(folder)]


def test_run_ends_before_exceeding_its_budget_and_resumes_with_a_larger_budget(tmp_path, capsys):
    start(tmp_path / "whole", **KEYS)
    whole = only_folder(tmp_path / "whole")
    up = [total["bytes_up"] for total in counted(whole)]
    limit = (up[5] + up[6]) // 2  # between the ends of two rounds

    start(tmp_path / "part", **KEYS, budget=f"{limit} B up")
    part = only_folder(tmp_path / "part")
    assert history(part) == history(whole)[:6]
    summary = read_summary(part)
    assert (summary["rounds"], summary["status"]) == (5, "finished")
    assert (summary["spent"], summary["budget"]) == (up[5], f"{limit} B up")
    assert summary["best-accuracy"] == max(line["accuracy"] for line in read_history(part))
    shown = capsys.readouterr().out
    assert f"{up[5]:.4g} of {limit} B up spent" in shown
    assert (
        f"round 6 is not counted: with it the run would have spent {up[6]:.4g} of"
        in (part / "run.log").read_text()
    )

    with pytest.raises(ConfigError, match=f"the run has spent {up[5]} B up already; give more"):
        start(tmp_path, **KEYS, budget=f"{up[4]} B up", resume=str(part))
    start(tmp_path, **KEYS, budget="1 GB up", resume=str(part))
    assert history(part) == history(whole)
    assert_model(part, whole)
    assert "in 9 rounds: give more num-server-rounds to spend the rest" in capsys.readouterr().out


def test_checkpoint_is_of_the_last_counted_round(tmp_path):
    keys = {**KEYS, "strategy": "fedavg", "checkpoint-every": 1000}
    start(tmp_path / "whole", **keys)
    whole = only_folder(tmp_path / "whole")
    limit = counted(whole)[4]["bytes_up"] + counted(whole)[4]["bytes_down"]
    start(tmp_path / "part", **keys, budget=f"{limit / 10} B both a client")  # of ten
    part = only_folder(tmp_path / "part")
    assert read_summary(part)["rounds"] == 4
    start(tmp_path, **keys, budget=f"{limit} B both", resume=str(part), **{"num-server-rounds": 6})
    assert [line["round"] for line in read_history(part)] == list(range(5))


def test_time_is_that_of_the_links(tmp_path):
    start(tmp_path, **KEYS, budget="1 s on 4g")
    folder = only_folder(tmp_path)
    seconds = [line["virtual_seconds"]["round"] for line in read_history(folder)[1:]]
    assert sum(seconds) <= 1 < sum(seconds) + 1.2 * max(seconds)
    assert read_summary(folder)["spent"] == pytest.approx(sum(seconds), abs=1e-5)


def test_budget_below_a_round_leaves_the_initial_model(tmp_path):
    start(tmp_path, **KEYS, budget="1 B up")
    summary = read_summary(only_folder(tmp_path))
    assert (summary["rounds"], summary["spent"], summary["best-round"]) == (0, 0, 0)
