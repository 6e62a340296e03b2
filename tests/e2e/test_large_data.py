"""Pictures of 20 GB train in a few GB of memory: they are read as they are needed."""

import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.processes import succeed
from tests.support.run_folders import only_folder, read_history
from tests.support.usage import measured

pytestmark = pytest.mark.long

GB = 10**9
TASK = '''
"""Pictures in one file of 20 GB, which is sparse: what was not written reads as zeros."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tasks.base import Task
from tasks.data.dataset import DataOptions, Dataset
from tasks.data.map_style import MapStyleSplit

COUNT, SIDE = 1_000_000, 80
BYTES = 3 * SIDE * SIDE  # 19,200 a picture
FILE = Path("FOLDER") / "pictures"


class Pictures:
    """The pictures of a part of the file; the class is the number's last digit."""

    def __init__(self, first, count):
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        place = self.first + number
        with FILE.open("rb") as file:
            file.seek(place * BYTES)
            pixels = np.frombuffer(file.read(BYTES), np.uint8).reshape(3, SIDE, SIDE).copy()
        pixels[0, :8, 8 * (place % 10) : 8 * (place % 10) + 8] = 255
        return pixels, place % 10


def load(options):
    if not FILE.exists():
        with FILE.open("wb") as file:
            file.truncate((COUNT + 1000) * BYTES)
    labels = np.arange(COUNT) % 10
    train = MapStyleSplit(Pictures(0, COUNT), labels=labels)
    test = MapStyleSplit(Pictures(COUNT, 1000), labels=labels[:1000])
    return Dataset(train, test, DataOptions("embedded"), "20 GB of pictures", "pictures")


def network():
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(300, 10))


TASK = Task("large", network, load, lambda x: x.float() / 255, learning_rate=0.5)
'''


def test_pictures_of_20_gb_train_in_memory_of_4_gb(tmp_path):
    (tmp_path / "large_task.py").write_text(TASK.replace("FOLDER", str(tmp_path)))
    words = [
        sys.executable, str(ROOT / "simulation.py"), "run", "--task", "large_task:TASK",
        "--num-clients", "1000", "--fraction-train", "0.01", "--partition", "dirichlet",
        "--local-steps", "10", "--batch-size", "20", "--num-server-rounds", "5",
        "--run-dir", str(tmp_path / "runs"),
    ]  # fmt: skip
    with measured() as usage:
        succeed(words, cwd=tmp_path)
    assert Path(tmp_path / "pictures").stat().st_size > 19 * GB
    history = read_history(only_folder(tmp_path / "runs"))
    assert history[-1]["accuracy"] > history[0]["accuracy"] + 0.2
    assert not any(line["rejected"] for line in history)
    assert usage.memory < 4 * GB, f"{usage.memory / GB:.2f} GB"
    sys.stdout.write(f"peak memory {usage.memory / GB:.2f} GB\n")
