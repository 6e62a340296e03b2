import torch

from tasks.yelp import YELP_STARS


def test_model_is_linear_in_mean_of_word_vectors():
    model = YELP_STARS.initial_model(1)
    words = torch.zeros(2, 256, dtype=torch.int16)
    words[0, :3] = torch.tensor([5, 9, 5])
    logits = model(YELP_STARS.prepare(words))
    vectors = model.words.weight
    expected = model.output((2 * vectors[5] + vectors[9]) / 3)
    torch.testing.assert_close(logits[0], expected)
    torch.testing.assert_close(logits[1], model.output.bias)  # a review without words
