from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from . import task
from .shared import MeasuredGrid, save

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the global model."""
    measured = MeasuredGrid(grid)
    strategy = FedAvg(
        fraction_train=context.run_config["fraction-train"],
        fraction_evaluate=context.run_config["fraction-evaluate"],
    )
    result = strategy.start(
        grid=measured,
        initial_arrays=task.initial_arrays(context.run_config["seed"]),
        train_config=ConfigRecord(task.TRAIN_CONFIG),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )
    accuracy = global_evaluate(0, result.arrays)["accuracy"]
    print(f"Final accuracy: {accuracy:.4f}")
    save(context.run_config["result"], result.arrays, accuracy, measured)


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the model on the server's data."""
    loss, accuracy = task.test(task.load_model(arrays, RecordDict()), task.server_data())
    return MetricRecord({"loss": loss, "accuracy": accuracy})
