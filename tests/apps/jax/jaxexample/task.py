import jax
import jax.numpy as jnp
import numpy as np

from jaxexample.shared import Examples

Params = list[tuple[jax.Array, jax.Array]]
SIZES = (64, 128, 64, 10)


def create_model(seed: int) -> Params:
    """Return the weights and biases of a multilayer perceptron."""
    keys = jax.random.split(jax.random.key(seed), len(SIZES) - 1)
    return [
        (jax.random.normal(key, (size_in, size_out)) * (2 / size_in) ** 0.5, jnp.zeros(size_out))
        for key, size_in, size_out in zip(keys, SIZES, SIZES[1:], strict=False)
    ]


def get_params(params: Params) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(params)]


def set_params(arrays: list[np.ndarray]) -> Params:
    """Return the model of which these are the arrays."""
    leaves = [jnp.asarray(array) for array in arrays]
    return list(zip(leaves[::2], leaves[1::2], strict=True))


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


def train(
    params: Params, examples: Examples, epochs: int, batch_size: int, lr: float, seed: int
) -> tuple[Params, float]:
    """Train the model; return it and the mean loss of its batches."""
    x, y = examples
    generator = np.random.default_rng(seed)
    losses = []
    for _ in range(epochs):
        order = generator.permutation(len(y))
        for start in range(0, len(y), batch_size):
            batch = order[start : start + batch_size]
            params, loss = step(params, x[batch], y[batch], lr)
            losses.append(float(loss))
    return params, float(np.mean(losses))


def test(params: Params, examples: Examples) -> tuple[float, float]:
    x, y = examples
    accuracy = (predict(params, x).argmax(1) == y).mean()
    return float(loss_fn(params, x, y)), float(accuracy)
