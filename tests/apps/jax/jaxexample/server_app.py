from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from jaxexample.shared import MeasuredGrid, digits, save
from jaxexample.task import create_model, get_params, set_params
from jaxexample.task import test as test_fn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the global model."""
    measured = MeasuredGrid(grid)
    arrays = ArrayRecord(get_params(create_model(context.run_config["seed"])))

    strategy = FedAvg(
        fraction_train=context.run_config["fraction-train"],
        fraction_evaluate=context.run_config["fraction-evaluate"],
    )
    result = strategy.start(
        grid=measured,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": context.run_config["lr"]}),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )

    accuracy = global_evaluate(0, result.arrays)["accuracy"]
    print(f"Final accuracy: {accuracy:.4f}")
    save(context.run_config["result"], result.arrays, accuracy, measured)


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the model on the server's data."""
    loss, accuracy = test_fn(set_params(arrays.to_numpy_ndarrays()), digits()[1])
    return MetricRecord({"loss": loss, "accuracy": accuracy})
