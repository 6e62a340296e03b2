"""Run many configs on one engine, in one process: see tests/e2e/test_every_task.py.

    python -m tests.support.engine_runner flower|ray CONFIGS.json FOLDER

Writes the final model of each config to FOLDER/NAME.safetensors and its history beside it.
Flower's simulation takes 10 seconds to start, so all configs share one: a file tells its clients
which of them the current run has.
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


def reply(message, context):
    """Reply as the ClientApp of the current run would, with a state of its own for each run."""
    from fedavg_app.client_app import app

    current = json.loads(Path(os.environ[CURRENT]).read_text())
    name = ConfigRecord({"name": current["name"]})
    if context.state.config_records.get("run") != name:
        context.state = RecordDict({"run": name})
    own = Context(
        context.run_id, context.node_id, context.node_config, context.state, current["config"]
    )
    answer = app(message, own)
    context.state = own.state
    return answer


for kind in (client.query, client.train, client.evaluate):
    kind()(reply)
client.train("gradient")(reply)


@server.main()
def serve(grid, context):
    """Run all configs, one after the other."""
    from fedavg_app.server.central_evaluation import CentralEvaluation

    for name, config in CONFIGS.items():
        Path(os.environ[CURRENT]).write_text(json.dumps({"name": name, "config": config}))
        run(name, config, grid, CentralEvaluation)


def run_all_on_ray():
    """Run all configs on RayGrid."""
    from fedavg_app.ray_engine.ray_cluster import ray_cluster

    with ray_cluster("", 1, 0, "cpu") as started:
        from fedavg_app.ray_engine.ray_grid import RayGrid

        for name, config in CONFIGS.items():
            with RayGrid(config, config["num-clients"], started().workers) as grid:
                run(name, config, grid, grid.evaluation)


def run(name, values, grid, evaluation):
    """Run one config, and write its model and history."""
    from fedavg_app import server_app
    from fedavg_app.config import parse_config
    from fedavg_app.server.preparation import prepare

    config = parse_config(values)
    result = server_app.run(grid, prepare(config), evaluation)
    arrays = {key: array.numpy() for key, array in result.model.items()}
    save_file(arrays, FOLDER / f"{name}.safetensors")
    history = [metrics.as_json() for metrics in result.history]
    (FOLDER / f"{name}.json").write_text(json.dumps(history))


if __name__ == "__main__":
    CONFIGS = json.loads(Path(sys.argv[2]).read_text())
    FOLDER = Path(sys.argv[3])
    if sys.argv[1] == "ray":
        run_all_on_ray()
    else:
        from flwr.simulation import run_simulation

        # By its name: Ray's workers import this module, which is not __main__ there.
        from tests.support import engine_runner

        engine_runner.CONFIGS, engine_runner.FOLDER = CONFIGS, FOLDER
        os.environ[CURRENT] = str(FOLDER / "current.json")
        resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(engine_runner.server, engine_runner.client, 4, backend_config=resources)
