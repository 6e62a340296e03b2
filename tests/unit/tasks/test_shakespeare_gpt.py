"""The tasks of results/lora.md."""

import numpy as np
import torch
from safetensors.torch import save_file

from paper.tasks import shakespeare_gpt as module
from tasks.data.dataset import DataOptions
from tasks.data.shakespeare import BEGIN, END
from tasks.model_arrays import ModelArrays


def test_lines_are_tokens_from_their_beginning_to_their_end():
    data, others = (task.dataset(DataOptions()) for task in (module.ADAPTERS, module.PRETRAINING))
    assert len(np.unique(data.train.owners)) == len(np.unique(data.test.owners)) == 157
    first = data.train.inputs["input_ids"][0], data.train.inputs["attention_mask"][0]
    symbols = first[0][first[1] == 1].tolist()
    assert (symbols[0], symbols[-1]) == (BEGIN, END)
    assert bytes(symbols[1:-1]) == b"Nay, but this dotage of our general's"
    predicted = (data.train.targets >= 0).sum(axis=1)
    assert (predicted == data.train.inputs["attention_mask"].sum(axis=1) - 1).all()
    own, other = (
        {line.tobytes() for line in part.train.inputs["input_ids"]} for part in (data, others)
    )
    assert len(own & other) < 0.01 * len(own)  # "Where is he?"


def test_adapters_are_of_the_pretrained_model(tmp_path, monkeypatch):
    torch.manual_seed(5)
    trained = module.gpt()
    state = {name: array.clone() for name, array in trained.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    monkeypatch.setenv("SHAKESPEARE_GPT", str(tmp_path))
    for task in (module.ADAPTERS, module.ADAPTERS_FFA):
        model = task.initial_model(1)
        base = model.unload().state_dict()
        assert all(torch.equal(base[name], value) for name, value in state.items())
    sent = [
        sum(model.state_dict()[name].numel() for name in ModelArrays.of(model).sent)
        for model in (module.ADAPTERS.initial_model(1), module.ADAPTERS_FFA.initial_model(1))
    ]
    assert sent == [18432, 10368]
    assert (
        sum(parameter.numel() for parameter in module.PRETRAINING.initial_model(1).parameters())
        == 368_256
    )
