import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def only_folder(runs):
    (folder,) = Path(runs).iterdir()
    return folder


def read_history(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


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
