import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from flowertuneexample.dataset import examples
from flowertuneexample.models import get_model
from flowertuneexample.shared import MeasuredGrid, save
from flowertuneexample.strategy import FlowerTuneLlm

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the adapters; test them on the server's texts."""
    config, measured = context.run_config, MeasuredGrid(grid)
    model = get_model(config["lora-r"], config["lora-alpha"])
    arrays = ArrayRecord(get_peft_model_state_dict(model))

    strategy = FlowerTuneLlm(
        fraction_train=config["fraction-train"],
        fraction_evaluate=config["fraction-evaluate"],
    )
    rates = config["learning-rate-max"], config["learning-rate-min"]
    strategy.rates = (config["num-server-rounds"], *rates)
    result = strategy.start(
        grid=measured, initial_arrays=arrays, num_rounds=config["num-server-rounds"]
    )

    set_peft_model_state_dict(model, result.arrays.to_torch_state_dict())
    texts = examples(200, seed=0)
    with torch.no_grad():
        found = model.eval()(input_ids=texts).logits[:, :-1].argmax(-1)
    accuracy = float((found == texts[:, 1:]).float().mean())
    print(f"Final accuracy: {accuracy:.4f}; {strategy.comm_tracker.curr_comm_cost:.2f} MB")
    save(config["result"], result.arrays, accuracy, measured)
