"""The package's own functions, which find tasks by name."""

import pytest

import tasks
from tasks.base import Task


@pytest.mark.parametrize("name", tasks.names())
def test_each_built_in_task_is_loaded_by_its_name(name):
    assert isinstance(tasks.load(name), Task)
    assert tasks.load(name).name == name


@pytest.mark.parametrize("look_up", [tasks.check_name, tasks.load])
def test_unknown_name_is_rejected_with_known_names(look_up):
    with pytest.raises(ValueError, match=r"known tasks: cifar10-cnn, .*, mnist-2nn, mnist-cnn"):
        look_up("mnist")
