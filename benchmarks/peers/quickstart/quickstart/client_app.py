"""The client: a new model, loader and optimizer for every message."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart.task import load_client, network, train

app = ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    """Train the received model."""
    config, node = context.run_config, context.node_config
    model = network(config["model"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader = load_client(
        config["data-dir"], node["partition-id"], node["num-partitions"], config["batch-size"]
    )
    rate = message.content["config"]["learning-rate"]
    loss = train(model, loader, rate, config["local-steps"])
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(loader.dataset)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
