"""Logistic regression of scikit-learn, in float64."""

import warnings

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from .shared import Examples, load_data, server_data, size

__all__ = ["load_data", "server_data", "size"]

EPOCHS, TRAIN_CONFIG = 3, {}


def initial_arrays(seed: int) -> ArrayRecord:
    return ArrayRecord([np.zeros((10, 64)), np.zeros(10)])


def load_model(arrays: ArrayRecord, state: RecordDict) -> LogisticRegression:
    """Return a model with these coefficients, from which its `fit` starts."""
    model = LogisticRegression(warm_start=True)
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = arrays.to_numpy_ndarrays()
    return model


def save_model(model: LogisticRegression, state: RecordDict) -> ArrayRecord:
    return ArrayRecord([model.coef_, model.intercept_])


def train(model: LogisticRegression, examples: Examples, epochs: int, lr: float) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations do not converge
        model.set_params(max_iter=epochs).fit(*examples)
    return test(model, examples)[0]


def test(model: LogisticRegression, examples: Examples) -> tuple[float, float]:
    x, y = examples
    loss = log_loss(y, model.predict_proba(x), labels=model.classes_)
    return float(loss), float(model.score(x, y))
