from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from jaxexample.shared import load_data
from jaxexample.task import get_params, set_params
from jaxexample.task import test as test_fn
from jaxexample.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    params = set_params(msg.content["arrays"].to_numpy_ndarrays())
    partition_id = context.node_config["partition-id"]
    trainset, _ = load_data(partition_id, context.node_config["num-partitions"])

    # Other batches in each round and on each client, but the same in each run
    server_round = msg.content["config"]["server-round"]
    seed = context.run_config["seed"] * 10_000 + server_round * 100 + partition_id
    epochs, batch_size = context.run_config["local-epochs"], context.run_config["batch-size"]
    lr = msg.content["config"]["lr"]
    params, train_loss = train_fn(params, trainset, epochs, batch_size, lr, seed)

    metrics = {
        "train_loss": train_loss,
        "num-examples": len(trainset[1]),
        "partition-id": partition_id,
    }
    arrays = ArrayRecord(get_params(params))
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    params = set_params(msg.content["arrays"].to_numpy_ndarrays())
    partition_id = context.node_config["partition-id"]
    _, testset = load_data(partition_id, context.node_config["num-partitions"])
    eval_loss, eval_acc = test_fn(params, testset)

    metrics = {
        "eval_loss": eval_loss,
        "eval_acc": eval_acc,
        "num-examples": len(testset[1]),
        "partition-id": partition_id,
    }
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
