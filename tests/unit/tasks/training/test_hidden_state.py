"""What a network keeps outside its state dict does not pass from call to call."""

import copy
import io
import threading

import numpy as np
import pytest
import torch
from torch import nn

from tasks.training.hidden_state import HiddenState
from tests.support.networks import mlp


class Keeper(nn.Module):
    """Keeps values of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.plain = nn.Tanh()
        self.register_buffer("persistent", torch.zeros(2))
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.count, self.seen, self.nested = 0, [1], {"a": [torch.zeros(2)]}
        self.rng, self.self_again = np.random.default_rng(0), [self]
        self.tensor, self.nothing = torch.zeros(2), None

    def change(self) -> None:
        self.persistent.add_(1)
        self.hidden += 1
        self.register_buffer("late", torch.ones(1))
        self.count, self.new = self.count + 1, "new"
        self.seen.append(2)
        self.nested["a"][0].add_(1)
        self.rng.normal()
        self.tensor = self.tensor + 1
        self.nothing = torch.ones(3)
        self.plain.mark = 1
        self.register_forward_hook(lambda *_: None)
        self.head.weight.requires_grad_(requires_grad=False)


def description(model):
    """Return all that the model keeps, as text."""
    return repr(
        (
            model.persistent, model.hidden, hasattr(model, "late"), model.count,
            hasattr(model, "new"), model.seen, model.nested, model.rng.bit_generator.state,
            model.tensor, model.nothing, hasattr(model.plain, "mark"), len(model._forward_hooks),
            model.head.weight.requires_grad, model.self_again[0] is model,
            list(model.state_dict()),
        )
    )  # fmt: skip


def test_everything_is_restored_however_often_it_changes():
    model = Keeper()
    before, state = description(model), HiddenState(model)
    assert state.shared == []
    for _ in range(3):
        model.change()
        assert description(model) != before
        state.restore()
        assert description(model) == before


def test_the_weights_and_the_training_mode_are_left_alone():
    model = Keeper()
    state = HiddenState(model)
    weight = model.head.weight
    with torch.no_grad():
        weight.add_(1)
    changed = weight.clone()
    model.eval()
    state.restore()
    assert model.head.weight is weight
    assert torch.equal(weight, changed)
    assert not model.training


def test_a_buffer_keeps_its_place_in_memory():
    """What was read from the state dict before is the model's own tensor afterwards."""
    model = Keeper()
    buffer = model.state_dict(keep_vars=True)["persistent"]
    state = HiddenState(model)
    model.persistent = model.persistent + 1
    state.restore()
    assert model.persistent is buffer


@pytest.mark.parametrize("value", [threading.Lock(), io.BufferedReader(io.BytesIO(b"")), np])
def test_uncopyable_attribute_is_named_unless_it_is_a_module(value):
    model = nn.Sequential(Keeper())
    model[0].other = value
    assert HiddenState(model).shared == ([] if value is np else ["0.other"])


def test_a_network_of_torchs_layers_costs_nothing():
    state = HiddenState(mlp())
    assert not any(len(value) for value in vars(state).values())


def test_a_copy_of_a_network_with_old_weight_norm_can_be_restored():
    """Its weight is a tensor with a history, which cannot be copied."""
    with pytest.warns(FutureWarning, match="weight_norm"):
        model = nn.utils.weight_norm(nn.Linear(2, 2))
    state, x = HiddenState(model), torch.ones(1, 2)
    expected = copy.copy(model(x).detach())
    state.restore()
    assert torch.equal(model(x), expected)
    assert state.shared == []
