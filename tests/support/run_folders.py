import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests.support.documents import ROOT
from tests.support.processes import succeed


def only_folder(runs):
    (folder,) = Path(runs).iterdir()
    return folder


def simulated(runs, keys, *, cwd=ROOT, **options):
    """Run simulation.py with these keys; return the run's folder in `runs`."""
    words = [f"--{key}={value}" for key, value in {"run-dir": runs, **keys}.items()]
    succeed([sys.executable, "simulation.py", "run", *words], cwd=cwd, **options)
    return only_folder(runs)


def read_history(folder):
    """Return the lines of a history; the last may be half written as yet."""
    lines = (folder / "history.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def history_of(runs):
    """Return that of the only run in a folder of runs, which may not have begun."""
    return next((read_history(path.parent) for path in Path(runs).glob("*/history.jsonl")), [])


def read_summary(folder):
    return json.loads((folder / "summary.json").read_text())


def assert_model(folder, expected, file="model.safetensors"):
    """Assert that a run ended in a model, given by its arrays or its run's folder, to the bit."""
    if isinstance(expected, Path):
        expected = load_file(expected / file)
    found = load_file(folder / file)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        array = array if isinstance(array, np.ndarray) else array.numpy()
        assert np.array_equal(found[name], array), name
