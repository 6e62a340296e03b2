import numpy as np
from sklearn.linear_model import LogisticRegression


def create_model(local_epochs: int) -> LogisticRegression:
    """Return a model whose coefficients are zero; `fit` starts from those that it has."""
    model = LogisticRegression(max_iter=local_epochs, warm_start=True)
    model.classes_ = np.arange(10)
    model.coef_ = np.zeros((10, 64))
    model.intercept_ = np.zeros(10)
    return model


def get_model_params(model: LogisticRegression) -> list[np.ndarray]:
    return [model.coef_, model.intercept_]


def set_model_params(model: LogisticRegression, params: list[np.ndarray]) -> None:
    model.coef_, model.intercept_ = params
