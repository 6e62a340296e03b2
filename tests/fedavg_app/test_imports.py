"""What a SuperNode's process imports: it starts anew for every message, so each import counts."""

import subprocess
import sys

# A ClientApp's process in small: one message, then the modules that it has loaded.
PROCESS = """
import sys
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from fedavg_app.client_app import app
from fedavg_app.internals import identify_server, stamp

identify_server(1)
kind = sys.argv[1]
run_config = {"strategy": "fedavg", "client-mods": "", "task": "mnist-logistic", "num-clients": 20}
where = Context(1, 1000, {"partition-id": 3}, RecordDict(), run_config)
content = RecordDict()
if kind == "train":
    import numpy as np
    arrays = {"1.weight": np.zeros((10, 784), "f4"), "1.bias": np.zeros(10, "f4")}
    config = {"learning-rate": 0.1, "local-steps": 1, "local-epochs": 0, "batch-size": 20,
              "seed": 1, "server-round": 1, "data-source": "embedded"}
    content["config"] = ConfigRecord(config)
    content["arrays"] = ArrayRecord({name: Array(a) for name, a in arrays.items()})
message = Message(content, dst_node_id=1000, message_type=kind)
stamp(message)
assert not app(message, where).has_error()
print(*sys.modules)
"""
# What parses, splits, downloads or draws, none of which is to be done for data in the cache.
HEAVY = {
    "datasets", "flwr_datasets", "matplotlib", "mlxtend", "pandas", "pooch", "pyarrow", "ray",
    "scipy", "sklearn", "tokenizers", "torchvision",
}  # fmt: skip


def imported(kind):
    """Return the packages that a process has imported after it answered one such message."""
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, kind], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_a_query_does_without_torch():
    assert not {"torch", *HEAVY} & imported("query")


def test_a_training_on_data_in_the_cache_imports_torch_and_little_else():
    imported("train")  # the first one parses the data and splits them
    found = imported("train")
    assert "torch" in found
    assert not HEAVY & found
