"""What processes import: a SuperNode starts a process for each message, so imports are costly."""

import sys
import tomllib

import pytest

from tests.support.documents import ROOT
from tests.support.processes import succeed

# A ClientApp's process in small: one message, then the modules that it has loaded.
CLIENT = """
import sys
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from fedavg_app.client_app import app
from fedavg_app.flower_internals import assign_message_id, identify_server

identify_server(1)
kind = sys.argv[1]
run_config = {"strategy": "fedavg", "client-mods": "", "task": "mnist-logistic", "num-clients": 20}
context = Context(1, 1000, {"partition-id": 3}, RecordDict(), run_config)
content = RecordDict()
if kind == "train":
    import numpy as np
    arrays = {"1.weight": np.zeros((10, 784), "f4"), "1.bias": np.zeros(10, "f4")}
    config = {"learning-rate": 0.1, "local-steps": 1, "local-epochs": 0, "batch-size": 20,
              "seed": 1, "server-round": 1, "data-source": "embedded"}
    content["config"] = ConfigRecord(config)
    content["arrays"] = ArrayRecord({name: Array(a) for name, a in arrays.items()})
message = Message(content, dst_node_id=1000, message_type=kind)
assign_message_id(message)
assert not app(message, context).has_error()
print(*sys.modules)
"""
SERVER = """
import sys
from fedavg_app.config import RunConfig
from fedavg_app.server.preparation import resolve
from fedavg_app.server_app import app

resolve(RunConfig())
print(*sys.modules)
"""
# They parse, split, download or plot; data in the cache need none of this.
HEAVY = {
    "datasets", "flwr_datasets", "matplotlib", "mlxtend", "pandas", "pyarrow", "ray",
    "scipy", "sklearn", "tokenizers", "torchvision",
}  # fmt: skip


def modules_after(program, *arguments):
    """Return the modules that a process has imported at the end of a program."""
    return set(succeed([sys.executable, "-c", program, *arguments], cwd=ROOT).stdout.split())


def packages(modules):
    return {name.partition(".")[0] for name in modules}


def test_query_imports_no_torch():
    assert not {"torch", *HEAVY} & packages(modules_after(CLIENT, "query"))


@pytest.mark.slow
def test_training_on_cached_data_imports_torch_but_nothing_that_parses_or_draws():
    modules_after(CLIENT, "train")  # the first run parses and splits the data
    found = packages(modules_after(CLIENT, "train"))
    assert "torch" in found
    assert not HEAVY & found


def test_server_imports_nothing_that_the_flower_app_bundle_leaves_out():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = config["tool"]["flwr"]["app"]["fab-exclude"]
    excluded = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for pattern in patterns
        # Before Python 3.13 a final "**" matches folders only.
        for path in ROOT.glob(pattern.replace("/**", "/**/*.py"))
    }
    assert {"fedavg_app.callbacks.figures", "fedavg_app.ray_engine.worker"} <= excluded
    found = modules_after(SERVER)
    assert not excluded & found
    assert not HEAVY & packages(found)
