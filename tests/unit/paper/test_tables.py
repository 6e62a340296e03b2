import json

import pytest

from paper.text import seeds, spread
from tests.support.made_up_results import MadeUpResults


def test_rounds_speedup_and_difference_match_values_computed_by_hand(tmp_path):
    results = MadeUpResults(tmp_path)
    results.add(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})  # 0.9 is half-way: 50 rounds
    results.add(1, 0, {0: 0.1, 10: 0.9}, rate=0.1)
    slow, fast = (row[0] for row in results.table())
    assert (slow.value, slow.speedup, slow.cell.paper, slow.difference) == (50, 1, 100, -0.5)
    assert (fast.value, fast.speedup, fast.cell.paper, fast.difference) == (10, 5, 20, -0.5)
    assert (fast.paper_speedup, fast.cell.others) == (5, 25)


def test_best_learning_rate_is_taken_with_mean_and_range_of_its_seeds(tmp_path):
    results = MadeUpResults(tmp_path)
    for seed, rounds in ((1, 30), (2, 40), (3, 38)):
        results.add(1, 0, {0: 0.1, rounds: 0.9}, seed, 0.1)
    results.add(1, 0, {0: 0.1, 50: 0.9}, 1, 0.2)
    result = results.table()[1][0]
    assert (result.value, spread(result.values, "rounds-to-target")) == (36, "30.0 to 40.0")
    assert {done.run.config.learning_rate for done in result.best} == {0.1}
    assert (len(result.best), len(result.done)) == (3, 4)


def test_minority_of_seeds_that_reached_the_target_gives_no_value(tmp_path):
    results = MadeUpResults(tmp_path)
    for seed, best in ((1, 0.9), (2, 0.8), (3, 0.85)):
        results.add(1, 0, {0: 0.1, 30: best}, seed, 0.1)
    result = results.table()[1][0]
    assert (result.value, result.difference) == (None, None)
    assert (seeds(result.values), spread(result.values, "rounds-to-target")) == (
        "1 of 3 seeds",
        "30.0",
    )


def test_first_row_that_missed_target_bounds_speedup_by_its_rounds(tmp_path):
    results = MadeUpResults(tmp_path)
    results.add(0, 0, {0: 0.1, 100: 0.8})
    results.add(1, 0, {0: 0.1, 16: 0.9}, rate=0.1)
    fast = results.table()[1][0]
    assert (fast.speedup, fast.speedup_above) == (None, 6.25)


@pytest.mark.parametrize(
    ("measure", "value"), [("upload-to-target", 50), ("traffic-to-target", 150)]
)
def test_megabytes_are_those_of_one_participant_until_the_target(tmp_path, measure, value):
    # Ten participants send 10 MB a round and are sent 20 MB: one of them sends 1 MB.
    results = MadeUpResults(tmp_path, measure)
    results.add(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})
    assert results.table()[0][0].value == pytest.approx(value)


@pytest.mark.parametrize(
    ("work", "computing"),
    [("local-epochs = 1", 0), ("local-steps = 7, batch-size = 20", 7 * 20 * 6.8e-6)],
)
def test_minutes_are_transfers_and_known_steps_or_the_virtual_clocks(tmp_path, work, computing):
    results = MadeUpResults(tmp_path)
    for name in ("IID", "shards"):
        results.edit(f'{{ name = "{name}"', f'{{ link = "4g", name = "{name}"')
    results.edit("rounds-to-target", "minutes-to-target")
    results.edit("{ local-epochs = 1 }", f"{{ {work} }}")
    results.add(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})
    # 50 rounds of 1 MB up at 5 Mbit/s, 2 MB down at 18, and two times 64 ms.
    seconds = 50 * (8 / 5 + 16 / 18 + 2 * 0.064 + computing)
    assert results.table()[0][0].value == pytest.approx(seconds / 60)
    (path,) = results.records.iterdir()
    record = json.loads(path.read_text())
    record["history"]["virtual_seconds"] = [0.0, 600.0, 1200.0]
    path.write_text(json.dumps(record))
    assert results.table()[0][0].value == pytest.approx(15)


def test_column_counts_only_the_rounds_within_its_limit(tmp_path):
    results = MadeUpResults(tmp_path, "best-accuracy")
    old, new = '{ name = "shards", run = { partition = "shards" } }', '{ name = "20", within = 20 }'
    results.edit(old, new)
    results.add(0, 0, {0: 0.1, 10: 0.6, 20: 0.7, 30: 0.9})
    assert [results.table()[0][column].value for column in (0, 1)] == [0.9, 0.7]
