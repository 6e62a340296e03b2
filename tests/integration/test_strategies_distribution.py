"""The strategies alone, installed as `fedavg_strategies` beside the project and other files."""

import json
import re
import sys

import pytest

from tests.support.documents import ROOT, examples
from tests.support.installed import install
from tests.support.processes import succeed

PACKAGES = ("strategies", "fedavg_strategies")
# Trains by the pages' own strategy and compressor, as a Flower app does; prints what it sent.
DRIVER = """
import importlib, json, sys, zlib
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from fedavg_app.flower_internals import identify_server
from fedavg_app.server.client_sampling import CohortGrid

package = sys.argv[1]
ours = importlib.import_module(package)
identify_server(1)
strategy = ours.load("compressed")(uplink="quantise8_" + package + ":Quantise8", min_train_nodes=2)
model, sent = ArrayRecord({"w": Array(np.zeros(50, np.float32))}), 0
contexts = {node: Context(1, node, {"partition-id": node}, RecordDict(), {}) for node in (1, 2)}
for number in (1, 2, 3):
    replies = []
    config = ConfigRecord({"lr": 0.1})
    for message in strategy.configure_train(number, model, config, CohortGrid(None, [1, 2])):
        node = message.metadata.dst_node_id
        def train(received, _, node=node):
            w = received.content["arrays"]["w"].numpy() + np.arange(50, dtype=np.float32) * node
            content = RecordDict({"arrays": ArrayRecord({"w": Array(w)}),
                                  "metrics": MetricRecord({"num-examples": 1})})
            return Message(content, reply_to=received)
        reply = strategy.client_mod(message, contexts[node], train)
        sent += sum(record.count_bytes() for record in reply.content.values())
        replies.append(reply)
    model, _ = strategy.aggregate_train(number, replies)
own = importlib.import_module("float16_fedavg_" + package)
loaded = sorted({name.partition(".")[0] for name in sys.modules} & {"strategies", package})
kind = next(value for value in vars(own).values() if isinstance(value, type)
            and issubclass(value, ours.load("fedavg")) and value is not ours.load("fedavg"))
print(json.dumps([zlib.crc32(model["w"].data), sent, loaded, kind().client_mod is not None]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder with the distribution, and third-party modules for either name."""
    folder = install(ROOT / "strategies", tmp_path_factory.mktemp("site"))
    pages = {"quantise8": "writing-a-compressor", "float16_fedavg": "writing-a-strategy"}
    for name, page in pages.items():
        text = examples(ROOT / f"docs/{page}.md")[f"{name}.py"]
        for package in PACKAGES:
            own = re.sub(r"\bstrategies\.", f"{package}.", text)
            (folder / f"{name}_{package}.py").write_text(own)
    (folder / "driver.py").write_text(DRIVER)
    return folder


def test_third_partys_code_runs_under_either_name(installed):
    """Both are installed; the same messages and the same model, and neither imports the other."""
    found = []
    for package in PACKAGES:
        words = [sys.executable, str(installed / "driver.py"), package]
        digest, sent, loaded, has_mod = json.loads(succeed(words, 120).stdout.splitlines()[-1])
        found.append((digest, sent, has_mod))
        assert package in loaded
    assert found[0] == found[1]


def test_users_own_strategies_module_hides_nothing(installed, tmp_path):
    (tmp_path / "strategies.py").write_text("MINE = 1\n")
    code = "import strategies, fedavg_strategies as f; print(strategies.MINE, f.load('stc'))"
    assert run_installed(installed, code, tmp_path) == "1 <class 'fedavg_strategies.stc.STC'>\n"


def test_all_strategies_load_with_neither_torch_nor_this_project(installed, tmp_path):
    code = "import fedavg_strategies as f; [f.load(name) for name in f.names()]; "
    code += "print({'fedavg_app', 'ray', 'strategies', 'tasks', 'torch'} & {*sys.modules})"
    assert run_installed(installed, code, tmp_path) == "set()\n"


def run_installed(installed, code, folder):
    words = [sys.executable, "-c", f"import sys; sys.path.insert(1, {str(installed)!r}); {code}"]
    return succeed(words, 60, cwd=folder).stdout


def test_the_wheel_has_types_licence_author_and_description(installed):
    package = installed / "fedavg_strategies"
    assert (package / "py.typed").exists()
    assert "Apache License" in (package / "LICENSE").read_text()
    (metadata,) = installed.glob("fedavg_strategies-*.dist-info/METADATA")
    text = metadata.read_text()
    for line in ("Author: The fedavg-app authors", "License-Expression: Apache-2.0", "Summary: "):
        assert f"\n{line}" in text


def test_no_file_of_the_strategies_names_its_own_package():
    """Under the distribution's name an absolute import would find another package, or none."""
    absolute = re.compile(r"^\s*(from|import) strategies\b|\"strategies\.", re.MULTILINE)
    for file in (ROOT / "strategies").rglob("*.py"):
        assert not absolute.search(file.read_text()), file
