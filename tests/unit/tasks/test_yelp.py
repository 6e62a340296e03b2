import re

import pytest

from tasks.data.dataset import DataError, DataOptions
from tasks.yelp import YELP
from tests.support.one_line import one_line

pytestmark = pytest.mark.usefixtures("cache")


def load(folder, text=None):
    folder.mkdir(exist_ok=True)
    if text is not None:
        (folder / "yelp.csv").write_text(text)
    return YELP.load(DataOptions(directory=str(folder)))


def test_words_are_numbered_by_frequency_in_training_reviews(tmp_path):
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
    # A word that is in no training review is unknown, 1.
    assert data.test.inputs[0][:5].tolist() == [1, 1, comma, good, words[1][0]]
    assert data.train.inputs.shape == (4, 256)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be loaded"),
        ("stars,text\n", "cannot be loaded"),
        ("stars,text\n5,fine\n", "targets are .* for 0 inputs"),
        ("text\nfine\n", "KeyError: 'stars'.*with the columns stars and text"),
        ("stars,text\n6,fine\n" * 5, "cannot be loaded"),
        ("stars,text\nfive,fine\n", "cannot be loaded"),
        ("stars,text\n5,fine\n4\n", "cannot be loaded"),
        ("stars,text\n5,good, bad and ugly\n", "a review is not in quotes"),
        ('stars,text\n5,"fine\n', "unexpected end of data"),
    ],
)
def test_damaged_file_is_reported(tmp_path, text, reason):
    with one_line(DataError, str(tmp_path / "a")) as caught:
        load(tmp_path / "a", text)
    assert re.search(reason, str(caught.value))
