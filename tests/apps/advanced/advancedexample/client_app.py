import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from advancedexample.task import Net, load_data
from advancedexample.task import test as test_fn
from advancedexample.task import train as train_fn

torch.set_num_threads(1)
app = ClientApp()
HEAD = "classification-head"


def received(msg: Message, context: Context) -> Net:
    """Return the model that was received, with this client's own head if it has one."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    if HEAD in context.state:
        head = context.state[HEAD].to_torch_state_dict()
        model.classification_head.load_state_dict(head)
    return model


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data, and keep its head."""
    model = received(msg, context)
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    trainloader, _ = load_data(partition_id, num_partitions, context.run_config["batch-size"])

    # Other batches in each round and on each client, but the same in each run
    server_round = msg.content["config"]["server-round"]
    torch.manual_seed(context.run_config["seed"] * 10_000 + server_round * 100 + partition_id)
    train_loss = train_fn(
        model, trainloader, context.run_config["local-epochs"], msg.content["config"]["lr"]
    )
    context.state[HEAD] = ArrayRecord(model.classification_head.state_dict())

    metrics = {
        "train_loss": train_loss,
        "num-examples": len(trainloader.dataset),
        "partition-id": partition_id,
    }
    arrays = ArrayRecord(model.state_dict())
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model, with this client's own head, on local data."""
    model = received(msg, context)
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    _, testloader = load_data(partition_id, num_partitions, context.run_config["batch-size"])
    eval_loss, eval_acc = test_fn(model, testloader)

    metrics = {
        "eval_loss": eval_loss,
        "eval_acc": eval_acc,
        "num-examples": len(testloader.dataset),
        "partition-id": partition_id,
    }
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
