"""The tasks of results/lora.md, as a reader saves them."""

import importlib
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tasks.data.dataset import DataOptions
from tasks.data.shakespeare import BEGIN, END
from tasks.model_arrays import ModelArrays
from tests.support.documents import ROOT, examples


@pytest.fixture
def page(tmp_path, monkeypatch):
    code = examples(ROOT / "results" / "lora.md")["shakespeare_gpt.py"]
    (tmp_path / "shakespeare_gpt.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shakespeare_gpt", raising=False)
    return importlib.import_module("shakespeare_gpt")


def test_lines_are_tokens_from_their_beginning_to_their_end(page):
    data, others = (task.dataset(DataOptions()) for task in (page.ADAPTERS, page.PRETRAINING))
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


def test_adapters_are_of_the_pretrained_model(page, tmp_path, monkeypatch):
    torch.manual_seed(5)
    trained = page.gpt()
    state = {name: array.clone() for name, array in trained.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    monkeypatch.setenv("SHAKESPEARE_GPT", str(tmp_path))
    for task in (page.ADAPTERS, page.ADAPTERS_FFA):
        model = task.initial_model(1)
        base = model.unload().state_dict()
        assert all(torch.equal(base[name], value) for name, value in state.items())
    sent = [
        sum(model.state_dict()[name].numel() for name in ModelArrays.of(model).sent)
        for model in (page.ADAPTERS.initial_model(1), page.ADAPTERS_FFA.initial_model(1))
    ]
    assert sent == [18432, 10368]
    assert (
        sum(parameter.numel() for parameter in page.PRETRAINING.initial_model(1).parameters())
        == 368_256
    )
