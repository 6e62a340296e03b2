"""sklearnexample: A Flower / scikit-learn app."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

Examples = tuple[np.ndarray, np.ndarray]


def digits() -> tuple[Examples, Examples]:
    """Return scikit-learn's images of digits: 1,440 to train with, 357 to test with."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x, y = images[order] / 16, labels[order]
    return (x[:1440], y[:1440]), (x[1440:], y[1440:])


def load_data(partition_id: int, num_partitions: int) -> tuple[Examples, Examples]:
    """Return a client's training and test examples: an IID share, split 80 to 20."""
    images, labels = digits()[0]
    x, y = images[partition_id::num_partitions], labels[partition_id::num_partitions]
    cut = len(y) * 4 // 5
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def create_model(local_epochs: int) -> LogisticRegression:
    """Return a model whose coefficients are zero; `fit` starts from those that it has."""
    model = LogisticRegression(max_iter=local_epochs, warm_start=True)
    model.classes_ = np.arange(10)
    model.coef_ = np.zeros((10, 64))
    model.intercept_ = np.zeros(10)
    return model


def get_model_params(model: LogisticRegression) -> list[np.ndarray]:
    """Return the model's coefficients."""
    return [model.coef_, model.intercept_]


def set_model_params(model: LogisticRegression, params: list[np.ndarray]) -> None:
    """Give the model other coefficients."""
    model.coef_, model.intercept_ = params
