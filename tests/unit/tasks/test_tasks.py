"""The package's own functions, which find tasks by name."""

import pytest

import tasks

# The 866,578 of the paper's LSTM have peepholes (3 * 256 a layer) where torch has second bias
# vectors (4 * 256 a layer).
PARAMETERS = {
    "cifar10-cnn": 1_068_298, "cifar10-vgg11": 865_482, "fashion-cnn": 1_663_370,
    "fashion-lstm": 216_330, "mnist-2nn": 199_210, "mnist-cnn": 1_663_370, "mnist-logistic": 7_850,
    "shakespeare-lstm": 866_578 - 2 * 768 + 2 * 1024, "yelp-stars": 640_325,
}  # fmt: skip


@pytest.mark.parametrize("name", tasks.names())
def test_each_built_in_task_has_the_documented_number_of_parameters_and_no_buffers(name):
    task = tasks.load(name)
    model = task.model()
    assert (task.name, sum(p.numel() for p in model.parameters())) == (name, PARAMETERS[name])
    assert sum(array.numel() for array in model.state_dict().values()) == PARAMETERS[name]


@pytest.mark.parametrize("look_up", [tasks.check_name, tasks.load])
def test_unknown_name_is_rejected_with_known_names(look_up):
    with pytest.raises(ValueError, match=r"known tasks: cifar10-cnn, .*, mnist-2nn, mnist-cnn"):
        look_up("mnist")
