"""What the pages' Python blocks import, name, call and override exists, by mypy."""

import ast
import inspect
import os
import pydoc
import re
import subprocess
import sys

import pytest

from tests.support.documents import DOCUMENTS, NAMED, ROOT, blocks

# Of mypy's errors; the others are about types, and checks for None, that short examples leave out.
ERRORS = ("attr-defined", "call-arg", "import-not-found", "name-defined", "override", "union-attr")
OPTIONAL = 'Item "None" of'
ELSEWHERE = '"pytorchexample.task"'  # of the reader's app


def python_blocks():
    """Return the Python blocks by file: the one that a block names, or one numbered by its page."""
    found = {}
    for page in DOCUMENTS:
        for number, (language, code) in enumerate(blocks(page.read_text(encoding="utf-8"))):
            named = NAMED.match(code)
            name = named[1] if named else f"{page.stem.replace('-', '_')}_{number}.py"
            if language == "python":
                assert name not in found
                found[name] = code
    return found


def annotated(code):
    """Return the code with the base classes' types at parameters of methods that have none.

    Without them mypy takes a parameter for Any, which has every attribute.
    """
    tree = ast.parse(code)
    origins = {
        alias.name: f"{line.module}.{alias.name}"
        for line in tree.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    modules = set()
    for made in [line for line in tree.body if isinstance(line, ast.ClassDef)]:
        bases = [pydoc.locate(origins.get(name, name)) for name in map(ast.unparse, made.bases)]
        for method in [line for line in made.body if isinstance(line, ast.FunctionDef)]:
            overridden = [getattr(base, method.name, None) for base in bases]
            for function in filter(inspect.isfunction, overridden):
                if method.name != "__init__":
                    modules |= annotate(method, inspect.get_annotations(function, eval_str=True))
    return "\n".join([*(f"import {name}" for name in sorted(modules)), ast.unparse(tree)])


def annotate(method, types):
    """Write types at a method's parameters; return the modules that they name."""
    modules = set()
    for parameter in method.args.args:
        if parameter.annotation is None and parameter.arg in types:
            text = inspect.formatannotation(types[parameter.arg])
            parameter.annotation = ast.Constant(text)
            modules |= {name.rpartition(".")[0] for name in re.findall(r"[\w.]+\.\w+", text)}
    return modules


def errors(blocks, folder):
    """Return mypy's errors in blocks of code, of the kinds in `ERRORS`."""
    for name, code in blocks.items():
        (folder / name).write_text(annotated(code.replace("fedavg_strategies", "strategies")))
    # With the project's options and from its folder: the cache is that of `make lint`.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-pretty", *map(str, sorted(folder.glob("*.py")))],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "."},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [
        line
        for line in done.stdout.splitlines()
        if line.endswith(tuple(f"[{kind}]" for kind in ERRORS))
        and OPTIONAL not in line
        and ELSEWHERE not in line
    ]


WRONG = """
from fedavg_strategies.fedavg import FedAvg
from strategies.base import Nothing
from tasks.mnist import MNIST_2NN

MNIST_2NN.modle()

class Mine(FedAvg):
    def read(self, now, reply):
        return (reply.report.metric["loss"] * now.modell.vector,)

    def step(self, now):
        return aggregate.mean
"""


@pytest.mark.slow
def test_pages_name_what_exists_and_wrong_names_are_found(tmp_path):
    found = errors({**python_blocks(), "wrong.py": WRONG}, tmp_path)
    assert [line for line in found if "/wrong.py:" not in line] == []
    for name in ("Nothing", "modle", "metric", "modell", "step", "aggregate"):
        assert f'"{name}"' in "\n".join(found)
