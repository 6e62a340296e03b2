"""A multilayer perceptron in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, RecordDict

from .shared import Examples, load_data, server_data, size

__all__ = ["load_data", "server_data", "size"]

EPOCHS, BATCH_SIZE, TRAIN_CONFIG = 1, 16, {"lr": 0.05}
SIZES = (64, 128, 64, 10)
Params = list[tuple[jax.Array, jax.Array]]


class Model:
    """Weights and biases by layers."""

    def __init__(self, params: Params) -> None:
        self.params = params


def initial_arrays(seed: int) -> ArrayRecord:
    keys = jax.random.split(jax.random.key(seed), len(SIZES) - 1)
    params = [
        (jax.random.normal(key, (size_in, size_out)) * (2 / size_in) ** 0.5, jnp.zeros(size_out))
        for key, size_in, size_out in zip(keys, SIZES, SIZES[1:], strict=False)
    ]
    return save_model(Model(params), RecordDict())


def load_model(arrays: ArrayRecord, state: RecordDict) -> Model:
    leaves = [jnp.asarray(array) for array in arrays.to_numpy_ndarrays()]
    return Model(list(zip(leaves[::2], leaves[1::2], strict=True)))


def save_model(model: Model, state: RecordDict) -> ArrayRecord:
    return ArrayRecord([np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(model.params)])


def predict(params: Params, x: jax.Array) -> jax.Array:
    for weight, bias in params[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = params[-1]
    return x @ weight + bias


def loss_fn(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    log_probabilities = jax.nn.log_softmax(predict(params, x))
    return -jnp.take_along_axis(log_probabilities, y[:, None], axis=1).mean()


@jax.jit
def step(params: Params, x: jax.Array, y: jax.Array, lr: float) -> tuple[Params, jax.Array]:
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    return jax.tree_util.tree_map(lambda p, g: p - lr * g, params, grads), loss


def train(model: Model, examples: Examples, epochs: int, lr: float) -> float:
    """Train the model; return the mean loss of its batches."""
    losses, (x, y) = [], examples
    for _ in range(epochs):
        for start in range(0, len(y), BATCH_SIZE):
            batch = slice(start, start + BATCH_SIZE)
            model.params, loss = step(model.params, x[batch], y[batch], lr)
            losses.append(float(loss))
    return float(np.mean(losses))


def test(model: Model, examples: Examples) -> tuple[float, float]:
    x, y = examples
    accuracy = (predict(model.params, x).argmax(1) == y).mean()
    return float(loss_fn(model.params, x, y)), float(accuracy)
