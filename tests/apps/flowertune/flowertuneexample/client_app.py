import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from flowertuneexample.dataset import examples
from flowertuneexample.models import get_model

torch.set_num_threads(1)
app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the adapters on local texts."""
    config, partition_id = context.run_config, context.node_config["partition-id"]
    texts = examples(400, seed=1 + partition_id)
    model = get_model(config["lora-r"], config["lora-alpha"])
    set_peft_model_state_dict(model, msg.content["arrays"].to_torch_state_dict())

    # Other batches in each round and on each client, but the same in each run
    server_round = msg.content["config"]["server-round"]
    seed = config["seed"] * 10_000 + server_round * 100 + partition_id
    generator = torch.Generator().manual_seed(seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=msg.content["config"]["learning-rate"])
    model.train()
    total = 0.0
    for _ in range(config["local-steps"]):
        rows = torch.randperm(len(texts), generator=generator)[: config["batch-size"]]
        loss = model(input_ids=texts[rows], labels=texts[rows]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()

    metrics = {
        "train_loss": total / config["local-steps"],
        "num-examples": len(texts),
        "partition-id": partition_id,
    }
    arrays = ArrayRecord(get_peft_model_state_dict(model))
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
