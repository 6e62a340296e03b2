"""Run many configs on one engine, in one process: see test_every_task.py.

    python -m tests.e2e.every_task stock|ray CONFIGS.json FOLDER

Writes the final model of each config to FOLDER/NAME.safetensors and its history beside it.
Flower's simulation takes 10 seconds to start, so all configs share one: a file tells its clients
which of them they work for.
"""

import json
import os
import sys
from pathlib import Path

from flwr.app import ConfigRecord, Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from safetensors.numpy import save_file

CURRENT = "FEDAVG_APP_TEST_CURRENT"

client = ClientApp()
server = ServerApp()


def answer(message, context):
    """Answer as the ClientApp of the current run would, with a state of its own for each run."""
    from fedavg_app.client_app import app

    current = json.loads(Path(os.environ[CURRENT]).read_text())
    mark = ConfigRecord({"name": current["name"]})
    if context.state.config_records.get("run") != mark:
        context.state = RecordDict({"run": mark})
    own = Context(
        context.run_id, context.node_id, context.node_config, context.state, current["config"]
    )
    reply = app(message, own)
    context.state = own.state
    return reply


for kind in (client.query, client.train, client.evaluate):
    kind()(answer)
client.train("gradient")(answer)


@server.main()
def serve(grid, context):
    """Run all configs, one after the other."""
    from fedavg_app.server_app import run

    for name, config in CONFIGS.items():
        Path(os.environ[CURRENT]).write_text(json.dumps({"name": name, "config": config}))
        keep(name, run(grid, config))


def keep(name, outcome):
    """Write what a run gave."""
    save_file({key: array.numpy() for key, array in outcome.arrays.items()},
              FOLDER / f"{name}.safetensors")  # fmt: skip
    history = [record.as_json() for record in outcome.records]
    (FOLDER / f"{name}.json").write_text(json.dumps(history))


def simulate_all():
    """Run all configs on RayGrid."""
    from fedavg_app.engine.cluster import cluster

    with cluster("", 1, 0, "cpu") as share:
        from fedavg_app.engine.grid import RayGrid
        from fedavg_app.server_app import run

        for name, config in CONFIGS.items():
            with RayGrid(config, config["num-clients"], share.workers) as grid:
                keep(name, run(grid, config, grid.evaluation))


if __name__ == "__main__":
    CONFIGS = json.loads(Path(sys.argv[2]).read_text())
    FOLDER = Path(sys.argv[3])
    if sys.argv[1] == "ray":
        simulate_all()
    else:
        from flwr.simulation import run_simulation

        # The module by its name: Ray's workers import it, and do not know what __main__ was.
        from tests.e2e import every_task

        every_task.CONFIGS, every_task.FOLDER = CONFIGS, FOLDER
        os.environ[CURRENT] = str(FOLDER / "current.json")
        resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(every_task.server, every_task.client, 4, backend_config=resources)
