import numpy as np

from tasks.data.dataset import Split


def test_labels_are_owners_where_there_are_any_and_targets_otherwise():
    targets, owners = np.array([3, 1, 2]), np.array([0, 0, 1])
    assert Split(np.zeros(3), targets).labels is targets
    assert Split(np.zeros(3), targets, owners).labels is owners


def test_length_is_the_number_of_examples_not_of_predictions():
    assert len(Split(np.zeros((2, 5)), np.zeros((2, 5), np.int64))) == 2
