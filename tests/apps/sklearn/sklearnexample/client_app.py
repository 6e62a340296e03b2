import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from sklearnexample.shared import load_data
from sklearnexample.task import create_model, get_model_params, set_model_params

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = create_model(context.run_config["local-epochs"])
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())
    partition_id = context.node_config["partition-id"]
    (x, y), _ = load_data(partition_id, context.node_config["num-partitions"])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations do not converge
        model.fit(x, y)

    metrics = {
        "train_loss": float(log_loss(y, model.predict_proba(x), labels=model.classes_)),
        "num-examples": len(y),
        "partition-id": partition_id,
    }
    arrays = ArrayRecord(get_model_params(model))
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    model = create_model(context.run_config["local-epochs"])
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())
    partition_id = context.node_config["partition-id"]
    _, (x, y) = load_data(partition_id, context.node_config["num-partitions"])

    metrics = {
        "eval_loss": float(log_loss(y, model.predict_proba(x), labels=model.classes_)),
        "eval_acc": float(model.score(x, y)),
        "num-examples": len(y),
        "partition-id": partition_id,
    }
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
