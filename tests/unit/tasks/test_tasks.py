"""The package's own functions, which find tasks by name."""

import pytest

import tasks
from tasks.base import Task


@pytest.mark.parametrize("name", tasks.names())
def test_each_built_in_task_is_loaded_by_its_name(name):
    assert isinstance(tasks.load(name), Task)
    assert tasks.load(name).name == name


def test_task_is_loaded_by_path():
    assert tasks.load("tasks.mnist:MNIST_CNN") is tasks.load("mnist-cnn")


def test_path_of_built_in_task_is_returned_without_importing_it():
    assert tasks.check_name("mnist-cnn") == "tasks.mnist:MNIST_CNN"
    assert tasks.check_name("no.such:TASK") == "no.such:TASK"


@pytest.mark.parametrize("look_up", [tasks.check_name, tasks.load])
def test_unknown_name_is_rejected_with_known_names(look_up):
    with pytest.raises(ValueError, match=r"known tasks: cifar10-cnn, .*, mnist-2nn, mnist-cnn"):
        look_up("mnist")


def test_path_without_a_task_is_rejected():
    with pytest.raises(AttributeError, match="NOPE"):
        tasks.load("tasks.mnist:NOPE")
    with pytest.raises(ModuleNotFoundError, match=r"no_such_module"):
        tasks.load("no_such_module:TASK")
    with pytest.raises(ValueError, match=r"'tasks\.mnist:MEAN' is not a tasks\.base\.Task"):
        tasks.load("tasks.mnist:MEAN")
