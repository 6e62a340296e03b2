import numpy as np

from fedavg_app.partitioning.natural import Natural


def test_each_owner_is_a_client():
    owners = np.array([7, 3, 7, 9, 3, 7, 9])
    parts = Natural().split(owners, 3, 1)
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2, 5], [3, 6]]


def test_fewer_clients_than_owners_are_whole_owners_the_same_in_both_splits():
    train = np.random.default_rng(0).integers(0, 50, 1000)
    test = np.random.default_rng(1).integers(0, 50, 400)
    pairs = zip(Natural().split(train, 10, 4), Natural().split(test, 10, 4), strict=True)
    for train_part, test_part in pairs:
        (owner,) = set(train[train_part])
        assert set(test[test_part]) == {owner}
        assert len(train_part) == (train == owner).sum()
