from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.metrics import log_loss

from sklearnexample.shared import MeasuredGrid, digits, save
from sklearnexample.task import create_model, get_model_params, set_model_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the global model."""
    measured = MeasuredGrid(grid)
    model = create_model(context.run_config["local-epochs"])
    arrays = ArrayRecord(get_model_params(model))

    strategy = FedAvg(
        fraction_train=context.run_config["fraction-train"],
        fraction_evaluate=context.run_config["fraction-evaluate"],
    )
    result = strategy.start(
        grid=measured,
        initial_arrays=arrays,
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )

    accuracy = global_evaluate(0, result.arrays)["accuracy"]
    print(f"Final accuracy: {accuracy:.4f}")
    save(context.run_config["result"], result.arrays, accuracy, measured)


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the model on the server's data."""
    model = create_model(local_epochs=1)
    set_model_params(model, arrays.to_numpy_ndarrays())
    x, y = digits()[1]
    loss = float(log_loss(y, model.predict_proba(x), labels=model.classes_))
    return MetricRecord({"loss": loss, "accuracy": float(model.score(x, y))})
