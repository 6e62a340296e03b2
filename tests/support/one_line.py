from contextlib import contextmanager

import pytest


@contextmanager
def one_line(kind, *parts):
    """Assert that an error of this kind is raised, that it is one line and has these parts."""
    with pytest.raises(kind) as caught:
        yield caught
    text = str(caught.value)
    assert "\n" not in text
    assert all(part in text for part in parts), text
