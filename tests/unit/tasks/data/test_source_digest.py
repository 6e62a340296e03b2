"""The name of parsed data in the cache follows what parses them."""

import functools
import importlib
import itertools
import subprocess
import sys

import pytest

from tasks.data.source_digest import source_digest

SOURCE = """
import functools
FACTOR = 2
def scaled(x):
    return x * FACTOR
def parse():
    return scaled(1)
def other():
    return scaled(1)
def made(change, offset):
    def inner():
        return change(offset)
    return inner
class Reader:
    def parse(self):
        return scaled(1)
"""


NUMBERS = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return what writes a module of that source, and imports it."""
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
        ("return scaled(1)", "return scaled(2)"), ("return x * FACTOR", "return x + FACTOR"),
        ("FACTOR = 2", "FACTOR = 3"),
    ],
)  # fmt: skip
def test_a_change_of_what_parses_gives_another_digest(module, before, after):
    first, second = module(SOURCE), module(SOURCE.replace(before, after))
    assert source_digest(first.parse) != source_digest(second.parse)
    assert source_digest(first.Reader().parse) != source_digest(second.Reader().parse)


def test_a_change_elsewhere_leaves_it_as_it_was(module):
    first, second = module(SOURCE), module(SOURCE.replace("def other", "def another"))
    assert source_digest(first.parse) == source_digest(second.parse)


def test_what_a_function_has_from_around_it_counts(module):
    made = module(SOURCE).made
    digests = {
        source_digest(one)
        for one in (
            made(abs, 1), made(abs, 2), made(lambda x: x, 1), made(lambda x: -x, 1),
            functools.partial(made, abs, 1), functools.partial(made, abs, 2),
        )
    }  # fmt: skip
    assert len(digests) == 6


def test_another_process_finds_the_same(tmp_path):
    (tmp_path / "parsing.py").write_text(SOURCE)
    code = "import parsing; from tasks.data.source_digest import source_digest as d; "
    code += "print(d(parsing.parse), d(parsing.made(parsing.scaled, (1, 'a'))))"
    found = {
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"],
            capture_output=True, text=True, check=True,
        ).stdout
        for _ in range(2)
    }  # fmt: skip
    assert len(found) == 1
