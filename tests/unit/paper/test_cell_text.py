from tests.support.made_up_results import MadeUpResults

ETA = "\N{GREEK SMALL LETTER ETA}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"


def test_rounds_speedups_and_differences_are_shown_next_to_those_of_the_paper(results):
    results.add(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})  # 0.9 is half-way: 50 rounds
    results.add(1, 0, {0: 0.1, 10: 0.9}, rate=0.1)
    slow, fast = results.shown(0, 0), results.shown(1, 0)
    assert (slow.ours, slow.state) == ("50.0", "measured")
    assert (slow.speedup, slow.paper, slow.difference) == (f"1.0{TIMES}", "100", f"{MINUS}50 %")
    assert (fast.ours, fast.speedup, fast.paper_speedup, fast.others, fast.difference) == (
        "10.0", f"5.0{TIMES}", f"5.0{TIMES}", "25", f"{MINUS}50 %",
    )  # fmt: skip
    assert fast.notes == [f"{ETA} = 0.1", "1 of 6 runs"]


def test_bound_of_speedup_is_rounded_down(results):
    results.add(0, 0, {0: 0.1, 100: 0.8})
    results.add(1, 0, {0: 0.1, 16: 0.9}, rate=0.1)
    assert results.shown(0, 0).speedup == ""
    assert results.shown(1, 0).speedup == f"> 6.2{TIMES}"  # 100 / 16 = 6.25


def test_no_speedup_is_shown_where_first_row_diverged(results):
    results.add(0, 0, {0: 0.1, 100: 0.8}, status="diverged", reason="the loss is not finite")
    results.add(1, 0, {0: 0.1, 16: 0.9}, rate=0.1)
    assert results.shown(1, 0).speedup == ""


def test_bound_of_speedup_in_megabytes_is_shown_likewise(tmp_path):
    results = MadeUpResults(tmp_path, "upload-to-target")
    results.add(0, 0, {0: 0.1, 100: 0.8})
    results.add(1, 0, {0: 0.1, 16: 0.9}, rate=0.1)
    assert results.shown(1, 0).speedup == f"> 6.2{TIMES}"


def test_notes_name_setting_seeds_and_missing_runs(results):
    for seed, rounds in ((1, 30), (2, 40), (3, 38)):
        results.add(1, 0, {0: 0.1, rounds: 0.9}, seed, 0.1)
    results.add(1, 0, {0: 0.1, 50: 0.9}, 1, 0.2)
    assert results.shown(1, 0).notes == [
        f"{ETA} = 0.1", "3 seeds: 30.0 to 40.0", "4 of 6 runs",
    ]  # fmt: skip


def test_notes_say_how_many_seeds_reached_the_target(results):
    results.add(1, 0, {0: 0.1, 10: 0.9}, 1, 0.1)
    results.add(1, 0, {0: 0.1, 10: 0.8}, 2, 0.1)
    assert "1 of 2 seeds: 10.0 to 10.0" in results.shown(1, 0).notes


def test_cell_without_number_says_why(results):
    results.add(0, 1, {0: 0.1, 1500: 0.8766})
    reason = "no usable reply in 3 rounds in a row: array 'b' has NaN or infinite values"
    results.add(1, 1, {0: 0.1, 3: 0.5}, rate=0.1, status="diverged", reason=reason)
    missed, diverged, absent = results.shown(0, 1), results.shown(1, 1), results.shown(1, 0)
    assert (missed.ours, missed.state, missed.notes) == (
        "not reached", "missed", ["in 1,500 rounds, best 87.7 %"],
    )  # fmt: skip
    assert (missed.paper, missed.speedup, missed.difference) == ("not reached", "", "")
    assert (diverged.ours, diverged.state) == ("diverged", "missed")
    assert (absent.ours, absent.state, absent.link, absent.notes) == ("\u2013", "absent", "", [])


def test_cell_that_was_not_run_says_how_long_it_would_take(results):
    results.edit("others = [25", "hours = [0.5, 0]\nothers = [25")
    why = "not run: the machine time went to other cells"
    assert results.shown(1, 0).title == f"{why}; about 30 min a run"
    assert results.shown(1, 1).title == why


def test_run_that_diverged_after_reaching_the_target_is_noted(results):
    results.add(0, 0, {0: 0.1, 40: 0.95, 50: 0.1}, status="diverged")
    shown = results.shown(0, 0)
    assert shown.state == "measured"
    assert "diverged later" in shown.notes


def test_megabytes_are_shown_without_needless_digits(tmp_path):
    results = MadeUpResults(tmp_path, "upload-to-target")
    results.add(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})
    assert results.shown(0, 0).ours == "50"


def test_accuracies_differ_by_percentage_points(tmp_path):
    results = MadeUpResults(tmp_path, "best-accuracy")
    results.edit("paper = [20", "paper = [0.9")
    results.add(1, 0, {0: 0.1, 5: 0.87, 10: 0.8}, rate=0.1)
    results.add(1, 0, {0: 0.1, 5: 0.5}, rate=0.2)
    shown = results.shown(1, 0)
    assert (shown.ours, shown.paper, shown.difference) == ("87.0 %", "90 %", f"{MINUS}3.0 points")


def test_column_with_limit_shows_best_accuracy_within_it(tmp_path):
    results = MadeUpResults(tmp_path, "best-accuracy")
    results.edit(
        '{ name = "shards", run = { partition = "shards" } }',
        '{ name = "in 20 rounds", within = 20 }',
    )
    results.add(0, 0, {0: 0.1, 10: 0.6, 20: 0.7, 30: 0.9})
    assert [results.shown(0, column).ours for column in (0, 1)] == ["90.0 %", "70.0 %"]


def test_rounds_beyond_limit_of_column_are_not_shown(tmp_path):
    results = MadeUpResults(tmp_path, within=20)
    results.add(0, 0, {0: 0.1, 20: 0.7, 100: 0.8})
    results.add(1, 0, {0: 0.1, 16: 0.9}, rate=0.1)
    assert results.shown(0, 0).notes == ["in 20 rounds, best 70.0 %"]
    assert results.shown(1, 0).speedup == f"> 1.2{TIMES}"  # 20 / 16 = 1.25


def test_best_rate_among_those_that_miss_the_target_is_noted(tmp_path):
    results = MadeUpResults(tmp_path, within=20)
    results.add(1, 0, {0: 0.1, 20: 0.8, 100: 0.81}, rate=0.1)
    results.add(1, 0, {0: 0.1, 20: 0.7, 100: 0.89}, rate=0.2)
    assert results.shown(1, 0).notes[0] == f"{ETA} = 0.1"
