"""The server: Flower's FedAvg, and a test of the global model after every round."""

import json
import time
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart.task import load_mnist, network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds; append [time, round, accuracy] to the file that "log" names after each."""
    config = context.run_config
    torch.manual_seed(1)
    model = network(config["model"])
    images, labels = load_mnist(config["data-dir"], "t10k")

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        model.eval()
        with torch.no_grad():
            logits = torch.cat([model(batch) for batch in images.split(1000)])
        accuracy = (logits.argmax(dim=1) == labels).float().mean().item()
        with Path(config["log"]).open("a") as file:
            file.write(json.dumps([time.time(), server_round, accuracy]) + "\n")
        return MetricRecord({"accuracy": accuracy})

    FedAvg(fraction_train=config["fraction-train"], fraction_evaluate=0.0).start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        train_config=ConfigRecord({"learning-rate": config["learning-rate"]}),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=evaluate,
    )
