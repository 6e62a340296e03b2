import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from .shared import MeasuredGrid, save
from .strategy import CustomFedAvg
from .task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the global model; the clients test it with their own heads."""
    measured = MeasuredGrid(grid)
    torch.manual_seed(context.run_config["seed"])
    arrays = ArrayRecord(Net().state_dict())

    strategy = CustomFedAvg(
        fraction_train=context.run_config["fraction-train"],
        fraction_evaluate=context.run_config["fraction-evaluate"],
    )
    result = strategy.start(
        grid=measured,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": 0.1}),
        num_rounds=context.run_config["num-server-rounds"],
    )

    last = max(result.evaluate_metrics_clientapp)
    accuracy = result.evaluate_metrics_clientapp[last]["eval_acc"]
    print(f"Final accuracy of the clients: {accuracy:.4f}; best: {strategy.best}")
    save(context.run_config["result"], result.arrays, accuracy, measured)
