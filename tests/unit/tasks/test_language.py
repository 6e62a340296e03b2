"""Examples of token ids, the next-token loss and perplexity, against torchmetrics."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional
from torchmetrics.text import Perplexity as Theirs

from tasks.language import Perplexity, next_token_loss, token_split

TEXTS = [[5, 3, 9], [1, 2], [7, 7, 7, 7, 7, 7], [4, 0, 2, 8]]


def outputs(number, length, vocabulary=10):
    drawn = torch.randn(number, length, vocabulary, generator=torch.Generator().manual_seed(0))
    return SimpleNamespace(logits=3 * drawn)


def part(found, rows):
    return SimpleNamespace(logits=found.logits[rows])


def test_texts_are_filled_up_and_cut_and_the_first_token_is_not_predicted():
    split = token_split(TEXTS, 4, np.arange(4))
    np.testing.assert_array_equal(
        split.inputs["input_ids"], [[5, 3, 9, 0], [1, 2, 0, 0], [7, 7, 7, 7], [4, 0, 2, 8]]
    )
    assert split.inputs["attention_mask"].sum(axis=1).tolist() == [3, 2, 4, 4]
    none = -100
    np.testing.assert_array_equal(
        split.targets, [[none, 3, 9, none], [none, 2, none, none], [none, 7, 7, 7], [none, 0, 2, 8]]
    )
    with pytest.raises(ValueError, match="text 1 has 1 tokens: nothing to predict"):
        token_split([[1, 2], [3]], 4)


def test_loss_and_perplexity_are_means_over_predicted_tokens():
    targets = torch.from_numpy(token_split(TEXTS, 6).targets)
    found, metric = outputs(4, 6), Perplexity()
    by_hand = [
        functional.cross_entropy(found.logits[row, place - 1], targets[row, place]).item()
        for row, place in (targets >= 0).nonzero().tolist()
    ]
    assert next_token_loss(found, targets).item() == pytest.approx(np.mean(by_hand), rel=1e-6)
    states = [metric.of_batch(part(found, rows), targets[rows]) for rows in (slice(1), slice(1, 4))]
    theirs = Theirs(ignore_index=-100)(found.logits[:, :-1], targets[:, 1:])
    assert metric.value(states) == pytest.approx(np.exp(np.mean(by_hand)), rel=1e-6)
    assert metric.value(states) == pytest.approx(theirs.item(), rel=1e-5)
    assert np.isnan(metric.value([{"sum": np.array(0.0), "count": np.array(0.0)}]))


def test_target_that_nothing_predicts_is_refused():
    with pytest.raises(ValueError, match="nothing predicts the first token of a text: make its"):
        next_token_loss(outputs(1, 3), torch.tensor([[1, 2, 3]]))
