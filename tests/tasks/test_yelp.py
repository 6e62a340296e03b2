import numpy as np
import pytest
import torch

from tasks.data import store
from tasks.data.store import DataError, DataOptions
from tasks.data.yelp import YELP
from tasks.yelp import YELP_STARS
from tests import slices


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.CACHE_VARIABLE, str(tmp_path / "cache"))


def load(folder, text=None):
    folder.mkdir(exist_ok=True)
    if text is not None:
        (folder / "yelp.csv").write_text(text)
    return YELP.load(DataOptions(directory=str(folder)))


def test_reviews_become_numbers_of_words(tmp_path):
    reviews = ["Good, good food.", "bad Food", "good", 'a "quoted"\nline', "unheard of, good bad"]
    rows = [f'{1 + n},"{r.replace(chr(34), chr(34) * 2)}"' for n, r in enumerate(reviews)]
    data = load(tmp_path / "a", "stars,text\n" + "\n".join(rows) + "\n")
    assert data.train.targets.tolist() == [0, 1, 2, 3]
    assert data.test.targets.tolist() == [4]  # every fifth is held out
    words = [row[row > 0].tolist() for row in data.train.inputs]
    good, comma, _, food, stop = words[0]
    assert words[0] == [good, comma, good, food, stop]
    assert good == 2  # the most frequent, after the two special ones
    assert words[1][1] == food  # in lower case
    assert words[2] == [good]
    assert len(words[3]) == 5  # a " quoted " line
    # What no training review has is unknown, 1.
    assert data.test.inputs[0][:5].tolist() == [1, 1, comma, good, words[1][0]]
    assert data.train.inputs.shape == (4, 256)


def test_a_review_is_cut_off_and_a_rerun_gives_the_same(tmp_path):
    text = "stars,text\n" + "".join(f'{1 + n % 5},"{"w " * 300}x{n}"\n' for n in range(10))
    assert (load(tmp_path / "a", text).train.inputs > 0).sum(axis=1).tolist() == [256] * 8
    again = YELP.read([tmp_path / "a" / "yelp.csv"])[0]
    assert np.array_equal(again.inputs, load(tmp_path / "a").train.inputs)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "lacks the columns stars and text"),
        ("stars,text\n", "only 0 reviews"),
        ("stars,text\n5,fine\n", "only 1 reviews"),
        ("text\nfine\n", "lacks the columns stars and text"),
        ("stars,text\n6,fine\n", "line 2 has 6 stars"),
        ("stars,text\nfive,fine\n", "corrupt or truncated"),
        ("stars,text\n5,fine\n4\n", "line 3 has not as many cells"),
        ("stars,text\n5,good, bad and ugly\n", "line 2 has not as many cells"),
        ('stars,text\n5,"fine\n', "corrupt or truncated"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, text, reason):
    with pytest.raises(DataError, match=reason) as caught:
        load(tmp_path / "a", text)
    assert "yelp.csv" in str(caught.value)


def test_without_the_file_it_names_the_way(tmp_path):
    with pytest.raises(DataError, match=r"has no yelp\.csv; give yelp\.csv, with the columns"):
        load(tmp_path / "empty")
    with pytest.raises(DataError, match=r"cannot be had .*: give data-dir"):
        YELP.load(DataOptions("auto"))


def test_the_model_takes_the_mean_of_the_words_vectors():
    model = YELP_STARS.initial_model(1)
    assert sum(p.numel() for p in model.parameters()) == 640_325
    words = torch.zeros(2, 256, dtype=torch.int16)
    words[0, :3] = torch.tensor([5, 9, 5])
    logits = model(YELP_STARS.prepare(words))
    vectors = model.words.weight
    expected = model.output((2 * vectors[5] + vectors[9]) / 3)
    torch.testing.assert_close(logits[0], expected)
    torch.testing.assert_close(logits[1], model.output.bias)  # a review without a word


@slices.needs_whole_data
def test_the_whole_file():
    data = YELP.load(DataOptions(directory=str(slices.WHOLE / "yelp")))
    both = np.bincount(data.train.targets) + np.bincount(data.test.targets)
    assert both.tolist() == [749, 927, 1461, 3526, 3337]
    assert (len(data.train), len(data.test)) == (8000, 2000)
    assert data.train.inputs.max() == 9999
