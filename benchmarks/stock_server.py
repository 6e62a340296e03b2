"""A ServerApp that leaves the rounds to Flower: see benchmarks/latency.py.

The clients are asked for the same work as by fedavg_app/server_app.py, and the global model is
evaluated after every round, too.
"""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedavg_app.config import parse_config
from fedavg_app.server.global_evaluation import CentralEvaluation
from fedavg_app.server.run_components import load_task
from fedavg_app.server_app import client_config

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds that the run config asks for, with Flower's loop."""
    config = parse_config(context.run_config)
    task = load_task(config)
    data = task.dataset(config.data_options)
    evaluate = CentralEvaluation(task, data, config)

    def evaluate_global(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        loss, accuracy = evaluate(arrays)
        return MetricRecord({"round": server_round, "loss": loss, "accuracy": accuracy})

    FedAvg(fraction_evaluate=0.0, min_available_nodes=config.num_clients).start(
        grid=grid,
        initial_arrays=ArrayRecord(task.initial_model(config.seed).state_dict()),
        num_rounds=config.num_server_rounds,
        train_config=ConfigRecord(
            {**client_config(config, data), "learning-rate": task.learning_rate}
        ),
        evaluate_fn=evaluate_global,
    )
