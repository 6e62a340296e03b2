"""The numbers of a comparison, recomputed from the files of runs without `fedavg_app`."""

import csv
import json
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

# Mbit/s up and down, and milliseconds, of docs/choosing-a-compressor.md.
LINK_4G = (5, 18, 64)
STATISTICS = {"mean": fmean, "std": stdev, "min": min, "max": max, "count": len}


def numbers(folder, target):
    """Return what a run of an accuracy took over 4G, by column."""
    rounds = [json.loads(line) for line in (Path(folder) / "history.jsonl").open()]
    curve = [
        (record["round"], record["accuracy"]) for record in rounds if record["accuracy"] is not None
    ]
    found = {
        "rounds": rounds[-1]["round"],
        "best_accuracy": max(accuracy for _, accuracy in curve),
        "final_accuracy": curve[-1][1],
        **spent(rounds),
    }
    reached = next((number for number, accuracy in curve if accuracy >= target), None)
    if reached is None:
        until = dict.fromkeys(["rounds", *spent(rounds)])
    else:
        before = [point for point in curve if point[0] < reached]
        until = {
            "rounds": float(reached),
            **spent([record for record in rounds if record["round"] <= reached]),
        }
        if before:  # where the line from the best value so far crosses the target
            last, best = before[-1][0], max(accuracy for _, accuracy in before)
            share = (target - best) / (dict(curve)[reached] - best)
            until["rounds"] = last + (reached - last) * share
    return found | {f"{key}_to_target": value for key, value in until.items()}


def spent(rounds):
    up, down, latency = LINK_4G
    sent = [record for record in rounds if record["participants"]]
    return {
        "rejected": sum(len(record["rejected"]) for record in rounds),
        "bytes_up": sum(record["bytes_up"] for record in rounds),
        "bytes_down": sum(record["bytes_down"] for record in rounds),
        "seconds": sum(record["seconds"] for record in rounds),
        "seconds_link": sum(
            record["largest_up"] * 8 / (up * 1e6) + record["largest_down"] * 8 / (down * 1e6)
            + 2 * latency / 1000 * record["exchanges"]
            for record in sent
        ),
    }  # fmt: skip


def check_csv(path, runs, target):
    """Compare every number of a table with the runs', given by the names of their rows."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows if row["row"] == "mean"] == list(runs)
    for name, folders in runs.items():
        counted = {str(folder): numbers(folder, target) for folder in folders}
        own = [row for row in rows if row["run"] == name]
        assert [row["row"] for row in own] == [*["run"] * len(folders), *STATISTICS]
        assert {row["folder"].rstrip("/") for row in own if row["row"] == "run"} == set(counted)
        for row in own:
            assert row["runs"] == ("1" if row["row"] == "run" else str(len(folders)))
            for key in next(iter(counted.values())):
                found = [row[key] for row in counted.values() if row[key] is not None]
                if row["row"] == "run":
                    expected = counted[row["folder"].rstrip("/")][key]
                elif row["row"] == "std" and len(found) < 2:
                    expected = None
                else:
                    expected = (
                        STATISTICS[row["row"]](found) if found or row["row"] == "count" else None
                    )
                shown = float(row[key]) if row[key] else None
                assert shown == (None if expected is None else pytest.approx(expected)), (name, key)


def check_latex(path, table, runs):
    """Compare every number of a LaTeX table with that of the CSV, at its precision."""
    text = path.read_text()
    head, _, body = text.partition(r"\midrule")
    up, down = re.findall(r"(?:up|down) \((\w+)\)", head)
    assert up == down
    scale = {"kB": 1e3, "MB": 1e6, "GB": 1e9}[up]
    columns = {
        "final_accuracy": 1, "best_accuracy": 1, "rounds_to_target": 1,
        "bytes_up_to_target": scale, "bytes_down_to_target": scale, "seconds_link_to_target": 60,
    }  # fmt: skip
    with table.open() as file:
        known = {(row["run"], row["row"]): row for row in csv.DictReader(file)}
    lines = re.sub(r"\\textbf|\\bfseries |[{}$]", "", body).splitlines()[1:-2]
    rows = [[cell.strip() for cell in line.removesuffix(r"\\").split(" & ")] for line in lines]
    assert [row[0].replace("\\", "") for row in rows] == list(runs)
    for name, row in zip(runs, rows, strict=True):
        assert row[1] == str(len(runs[name]))
        reached = known[name, "count"]["rounds_to_target"]
        assert row[2 : -len(columns)] in ([], [reached])
        for cell, (key, unit) in zip(row[-len(columns) :], columns.items(), strict=True):
            mean, own = (known[name, which][key] for which in ("mean", "std"))
            if not mean:
                assert cell == "--"
                continue
            middle, _, beside = cell.partition(r" \pm ")
            half = 0.5000001 * 10 ** -len(middle.partition(".")[2])
            assert float(middle) == pytest.approx(float(mean) / unit, abs=half), (name, key)
            own = float(own or 0) / unit
            assert float(beside or 0) == pytest.approx(own, abs=half), (name, key)
            assert beside or own <= half
