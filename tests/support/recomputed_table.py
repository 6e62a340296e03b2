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
            + 2 * latency / 1000
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


def check_latex(path, runs, target):
    """Compare every number of a table up to a target with the runs', at its precision."""
    text = path.read_text()
    headings = next(line for line in text.splitlines() if "{final}" in line)
    scale = {"kB": 1e3, "MB": 1e6, "GB": 1e9}[re.search(r"up \((\w+)\)", headings)[1]]
    assert f"down ({re.search(r'up .(..)', headings)[1]})" in headings
    columns = [
        ("final_accuracy", 1), ("best_accuracy", 1), ("rounds_to_target", 1),
        ("bytes_up_to_target", scale), ("bytes_down_to_target", scale),
        ("seconds_link_to_target", 60),
    ]  # fmt: skip
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    rows = [[cell.strip(" $") for cell in line.removesuffix(r"\\").split(" & ")] for line in body]
    assert [row[0].replace("\\", "") for row in rows] == list(runs)
    for row, folders in zip(rows, runs.values(), strict=True):
        counted = [numbers(folder, target) for folder in folders]
        assert row[1] == str(len(folders))
        if "{reached}" in headings:
            assert int(row[3]) == sum(run["rounds_to_target"] is not None for run in counted)
        for cell, (key, unit) in zip(row[-len(columns) :], columns, strict=True):
            found = [run[key] / unit for run in counted if run[key] is not None]
            if not found:
                assert cell == "{--}"
                continue
            mean, _, deviation = cell.partition(r" \pm ")
            half = 0.5000001 * 10 ** -len(mean.partition(".")[2])
            assert float(mean) == pytest.approx(fmean(found), abs=half), (row[0], key)
            own = stdev(found) if len(found) > 1 else 0.0
            assert float(deviation or 0) == pytest.approx(own, abs=half), (row[0], key)
            assert deviation or own <= half
