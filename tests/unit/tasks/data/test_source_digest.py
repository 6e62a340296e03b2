"""The name of parsed data in the cache follows what parses them."""

import copy
import functools
import importlib
import itertools
import sys

import numpy as np
import pandas
import pytest
import torch

from tasks.data.source_digest import source_digest
from tests.support.processes import succeed

SOURCE = """
import functools
FACTOR = 2
TABLE = {"a": [1, 2]}
class Config:
    offset = 4
    def half(self):
        return self.offset / 2
CONFIG = Config()
def scaled(x):
    return x * FACTOR
def parse():
    return scaled(1) + TABLE["a"][0] + CONFIG.half()
def other():
    return scaled(1)
def made(change, offset):
    def inner():
        return change(offset)
    return inner
class Reader:
    def __init__(self, number=0):
        self.number = number
    def parse(self):
        return scaled(1) + TABLE["a"][0] + CONFIG.half() + self.number
    def __call__(self):
        return self.number
@functools.cache
def kept():
    return scaled(1) + TABLE["a"][0] + CONFIG.half()
"""


NUMBERS = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module with that source and imports it."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source):
        name = f"parsing_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return write


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return scaled(1)", "return scaled(2)"), ("[1, 2]", "[1, 3]"),
        ("offset = 4", "offset = 5"), ("self.offset / 2", "self.offset / 3"),
        ("return x * FACTOR", "return x + FACTOR"), ("FACTOR = 2", "FACTOR = 3"),
    ],
)  # fmt: skip
def test_a_change_of_what_parses_gives_another_digest(module, before, after):
    first, second = module(SOURCE), module(SOURCE.replace(before, after))
    assert source_digest(first.parse) != source_digest(second.parse)
    assert source_digest(first.Reader().parse) != source_digest(second.Reader().parse)
    assert source_digest(first.kept) != source_digest(second.kept)


def test_digest_does_not_depend_on_unrelated_code(module):
    first, second = module(SOURCE), module(SOURCE.replace("def other", "def another"))
    assert source_digest(first.parse) == source_digest(second.parse)


def test_values_that_a_function_captures_change_its_digest(module):
    found = module(SOURCE)
    made, reader = found.made, found.Reader
    digests = {
        source_digest(variant)
        for variant in (
            made(abs, 1), made(abs, 2), made(lambda x: x, 1), made(lambda x: -x, 1),
            functools.partial(made, abs, 1), functools.partial(made, abs, 2),
            made(abs, [1]), made(abs, {"a": np.arange(3)}), made(abs, {"a": np.arange(4)}),
            reader(1).parse, reader(2).parse, reader(1), reader(2), made(abs, {1, 2}),
        )
    }  # fmt: skip
    assert len(digests) == 14


@pytest.mark.parametrize(
    "values",
    [
        (np.array(["a", None]), np.array(["b", None])),
        (torch.ones(2), torch.zeros(2)),
        (torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2)),
        (pandas.DataFrame({"a": ["x"]}), pandas.DataFrame({"a": ["y"]})),
        (pandas.DataFrame({"a": ["x"]}), pandas.DataFrame({"b": ["x"]})),
        (pandas.Series([1.0]), pandas.Series([2.0])),
        (pandas.Timestamp("2020-01-01"), pandas.Timestamp("2020-01-02")),
    ],
)
def test_arrays_of_objects_tensors_and_tables_count(module, values):
    made = module(SOURCE).made
    first, second = (source_digest(made(abs, value)) for value in values)
    assert first != second
    assert source_digest(made(abs, copy.deepcopy(values[0]))) == first


def test_another_process_computes_the_same_digest(tmp_path):
    (tmp_path / "parsing.py").write_text(SOURCE)
    code = "import parsing; from tasks.data.source_digest import source_digest as d; "
    code += "print(d(parsing.parse), d(parsing.made(parsing.scaled, (1, 'a'))), "
    code += "d(parsing.Reader(1).parse), d(lambda: 'a' in {'a', 'b', 'c'}))"
    words = [sys.executable, "-c", code]
    found = {succeed(words, cwd=tmp_path).stdout for _ in range(2)}
    assert len(found) == 1
