import datasets
import numpy as np
import pytest
from flwr_datasets.partitioner import IidPartitioner

from fedavg_app.partitioning.iid import Iid
from tasks.training.random_streams import numpy_generator


@pytest.mark.parametrize(("examples", "clients"), [(100, 10), (103, 10), (7, 7), (60, 1)])
def test_partition_is_that_of_flwr_datasets(examples, clients):
    labels = np.zeros(examples, np.int64)
    parts = Iid().split(labels, clients, 5)
    order = numpy_generator(5, "partition").permutation(examples)
    library = IidPartitioner(clients)
    library.dataset = datasets.Dataset.from_dict({"index": order})
    for number, part in enumerate(parts):
        assert part.tolist() == library.load_partition(number)["index"]
