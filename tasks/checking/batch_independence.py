"""The check that an example's output in a test depends on neither draws nor its batch."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from tasks.base import Task
from tasks.checking.examples import few_examples
from tasks.checking.finding import Finding, TaskError
from tasks.checking.network import Outputs, forward
from tasks.data.dataset import Dataset
from tasks.training.examples import number_of, parts_of


def check_tests(task: Task, data: Dataset, model: nn.Module) -> Iterator[Finding]:
    """Yield whether a test's outputs are drawn, or depend on the other examples of the batch."""
    inputs, _ = few_examples(task, data.train, training=False)
    model.eval()
    first, again = forward(model, inputs, seed=0), forward(model, inputs, seed=1)
    if not _same(first, again, 0.0):
        text = "two tests of one batch give two outputs: draws, which the batch's place seeds, or "
        yield Finding("note", "model", f"{text}something kept, which each batch begins without")
        return
    number = number_of(inputs)
    if not isinstance(first, Tensor) or len(first) != number:
        return
    try:
        alone = [forward(model, part) for part in parts_of(inputs, 1, number)]
    except TaskError as error:
        text = "a test of one example fails, so it depends on the others of its batch, or a last "
        yield Finding("warning", "model", f"{text}batch of one has no result ({error})")
        return
    same_shape = all(output.shape[1:] == first.shape[1:] for output in alone)
    if same_shape and not _same(torch.cat(alone), first, 1e-3):
        text = "an example's output in a test depends on the others of its batch; a test's "
        yield Finding("warning", "model", f"{text}result depends on the size of batches")


def _same(a: Outputs, b: Outputs, tolerance: float) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance)
    if isinstance(a, Mapping):
        return all(_same(a[key], b[key], tolerance) for key in a)
    if isinstance(a, tuple | list):
        return all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return True
