import datasets
import numpy as np
import pytest

from tasks.data.dataset import DataError, DataOptions
from tasks.data.mnist import FASHION_MNIST, MNIST
from tests.support import idx_files
from tests.support.idx_files import NAMES


def test_embedded_subset_is_5000_distinct_real_digits():
    data = MNIST.load(DataOptions("embedded"))
    assert data.train.inputs.shape == (4000, 28, 28)
    assert data.test.inputs.shape == (1000, 28, 28)
    assert data.train.inputs.dtype == np.uint8
    assert np.bincount(data.train.targets).tolist() == [400] * 10
    assert np.bincount(data.test.targets).tolist() == [100] * 10
    images = np.concatenate([data.train.inputs, data.test.inputs])
    assert len({image.tobytes() for image in images}) == 5000
    # MNIST's mean and standard deviation, to the accuracy of a sample of 5,000.
    assert images.mean() / 255 == pytest.approx(0.1307, abs=0.003)
    assert images.std() / 255 == pytest.approx(0.3081, abs=0.005)
    assert "embedded" in data.description


def test_fingerprint_of_embedded_subset_is_pinned():
    """A cache may hold the arrays of an earlier version of the parser.

    If the fingerprint has to change, raise `parser_version` of `MNIST` and pin both here.
    """
    assert MNIST.parser_version == 1
    assert MNIST.load(DataOptions("embedded")).fingerprint == (
        "8e488a0bf3875aa2f068a8ca05dd2da16f7dfcb9c78b341a13d3cdb83a9a6620"
    )


@pytest.mark.parametrize(
    ("name", "array", "fragment"),
    [
        (NAMES[0], np.zeros((12, 10, 10)), "train-images-idx3-ubyte holds 12x10x10 pixels"),
        (NAMES[3], np.full(5, 77), "t10k-labels-idx1-ubyte has the label 77"),
    ],
)
def test_valid_idx_files_of_other_data_are_rejected(cache, mnist_files, name, array, fragment):
    folder, _ = mnist_files
    idx_files.replace(folder, name, array)
    with pytest.raises(DataError, match=fragment):
        MNIST.load(DataOptions(directory=str(folder)))
    assert not list(cache.rglob("meta.json"))


def test_images_of_the_hub_are_loaded(cache, mnist_files, monkeypatch):
    _, contents = mnist_files

    def load_dataset(name):
        assert name == "ylecun/mnist"
        features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
        return datasets.DatasetDict(
            {
                split: datasets.Dataset.from_dict(
                    {"image": list(contents[images]), "label": contents[labels]}, features=features
                )
                for split, images, labels in (("train", *NAMES[:2]), ("test", *NAMES[2:]))
            }
        )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = MNIST.load(DataOptions("hub"))
    assert np.array_equal(data.train.inputs, contents[NAMES[0]])
    assert np.array_equal(data.test.targets, contents[NAMES[3]])


@pytest.mark.skipif(not FASHION_MNIST.package[0].is_dir(), reason="needs dataset-fashion-mnist")
def test_whole_fashion_mnist_of_debian_package():
    data = FASHION_MNIST.load(DataOptions("auto"))
    assert np.bincount(data.train.targets).tolist() == [6000] * 10
    assert np.bincount(data.test.targets).tolist() == [1000] * 10
    assert data.train.inputs.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
