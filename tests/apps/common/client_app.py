from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from . import task

app = ClientApp()


def data(msg: Message, context: Context) -> tuple:
    """Return the client's number and its examples, in other batches in each round."""
    number = context.node_config["partition-id"]
    server_round = msg.content["config"]["server-round"]
    seed = context.run_config["seed"] * 10_000 + server_round * 100 + number
    return number, *task.load_data(number, context.node_config["num-partitions"], seed=seed)


def reply(msg: Message, number: int, metrics: dict, arrays: ArrayRecord | None = None) -> Message:
    content = RecordDict({"metrics": MetricRecord({**metrics, "partition-id": number})})
    if arrays is not None:
        content["arrays"] = arrays
    return Message(content=content, reply_to=msg)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = task.load_model(msg.content["arrays"], context.state)
    number, trainset, _ = data(msg, context)
    loss = task.train(model, trainset, task.EPOCHS, msg.content["config"].get("lr", 0.0))
    metrics = {"train_loss": loss, "num-examples": task.size(trainset)}
    return reply(msg, number, metrics, task.save_model(model, context.state))


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    model = task.load_model(msg.content["arrays"], context.state)
    number, _, testset = data(msg, context)
    loss, accuracy = task.test(model, testset)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": task.size(testset)}
    return reply(msg, number, metrics)
