"""The log in a training's folder."""

import logging

import pytest

from fedavg_app.callbacks.log_file import LogFile


def fail():
    raise ZeroDivisionError("in a user's strategy")


def test_log_has_debug_messages_and_the_traceback_that_ended_the_training(tmp_path):
    project, other = logging.getLogger("fedavg_app"), logging.getLogger("somebody.else")
    level = project.level
    log = LogFile(tmp_path)
    project.warning("before")
    log.open()
    logging.getLogger("fedavg_app.strategies").debug("node 3 failed")
    other.warning("of a user's module")
    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    log.close(caught.value)
    project.warning("after")
    text = (tmp_path / "run.log").read_text()
    lines = text.splitlines()
    assert lines[0].endswith("DEBUG fedavg_app.strategies node 3 failed")
    assert lines[1].endswith("WARNING somebody.else of a user's module")
    assert lines[-1] == "ZeroDivisionError: in a user's strategy"
    assert f'File "{__file__}"' in text
    assert "before" not in text
    assert "after" not in text
    assert project.level == level


def test_training_without_messages_leaves_no_log(tmp_path):
    log = LogFile(tmp_path)
    log.open()
    log.close(None)
    assert not list(tmp_path.iterdir())
