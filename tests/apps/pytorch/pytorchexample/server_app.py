import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch.utils.data import DataLoader

from pytorchexample.shared import MeasuredGrid, digits, save
from pytorchexample.task import Net, tensors
from pytorchexample.task import test as test_fn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the global model."""
    measured = MeasuredGrid(grid)
    torch.manual_seed(context.run_config["seed"])
    arrays = ArrayRecord(Net().state_dict())

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
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test_fn(model, DataLoader(tensors(digits()[1]), batch_size=100))
    return MetricRecord({"loss": loss, "accuracy": accuracy})
