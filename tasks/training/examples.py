"""`Examples`: the examples of a client or a test set, on the device that computes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from tasks.data.dataset import first_leaf, map_leaves

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Examples:
    """Examples on a device, as stored or prepared for the model.

    Attributes:
        inputs: Inputs as stored or prepared, a tensor or a dictionary (once prepared also a tuple)
            of tensors; the first dimension is the examples.
        targets: Their targets, a tensor or a dictionary of tensors; None where there are none.
        prepare: Turns stored inputs into the model's when they are needed; None where they are
            prepared already.
        rows: Which of the examples these are, int64; None for all.
        channels_last: Whether images (n, c, h, w) are put into that layout.
    """

    inputs: Any
    targets: Any = field(repr=False)
    prepare: Callable[[Any], Any] | None = None
    rows: Tensor | None = None
    channels_last: bool = False

    def __len__(self) -> int:
        return len(first_leaf(self.inputs) if self.rows is None else self.rows)

    @property
    def device(self) -> torch.device:
        """Where the examples are."""
        device: torch.device = first_leaf(self.inputs).device
        return device

    def batches(self, size: int, *, no_single: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield the batches that `places` describes, prepared one at a time."""
        for start, end in self.places(size, no_single=no_single):
            yield self.slice(start, end)

    def places(self, size: int, *, no_single: bool = False) -> list[tuple[int, int]]:
        """Return where consecutive batches of ``size`` start and end; the last may be smaller.

        Args:
            size: 0 for a single batch.
            no_single: Whether a last batch of one example takes another from the batch before it,
                if that has three or more.
        """
        bounds = [*range(0, len(self), size or len(self)), len(self)]
        if no_single and size > 2 and bounds[-2] == len(self) - 1 > 0:
            bounds[-2] -= 1
        return list(pairwise(bounds))

    def slice(self, start: int, end: int) -> tuple[Any, Any]:
        """Return the prepared inputs and the targets of some consecutive examples."""
        chosen: slice | Tensor = slice(start, end)
        if self.rows is not None:
            chosen = self.rows[chosen]
        inputs = chosen_of(self.inputs, chosen)
        if self.prepare is not None:
            inputs = self.prepare(map_leaves(torch.clone, inputs) if self.rows is None else inputs)
        if self.channels_last and isinstance(inputs, Tensor) and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return inputs, chosen_of(self.targets, chosen)

    def shuffled(self, generator: torch.Generator, limit: int | None = None) -> "Examples":
        """Return the examples in an order drawn from ``generator``; the first ``limit`` of them."""
        order = torch.randperm(len(self), generator=generator)[:limit].to(self.device)
        rows = order if self.rows is None else self.rows[order]
        return replace(self, rows=rows)

    def all_targets(self) -> Any:
        """Return the targets of all examples."""
        return self.targets if self.rows is None else chosen_of(self.targets, self.rows)

    def prepared(self) -> "Examples":
        """Return a copy of the examples with prepared inputs."""
        inputs, targets = self.slice(0, len(self))
        return Examples(inputs, targets, channels_last=self.channels_last)


@dataclass(frozen=True)
class MapStyleExamples(Examples):
    """Examples of a `MapStyleSplit`, read when they are needed.

    Attributes:
        place: The device to put them on.
    """

    place: torch.device = CPU

    def __len__(self) -> int:
        return len(self.inputs if self.rows is None else self.rows)

    @property
    def device(self) -> torch.device:
        """Where the examples are once they are read."""
        return self.place

    def slice(self, start: int, end: int) -> tuple[Any, Any]:
        """Read some consecutive examples; return the prepared inputs and the targets."""
        end = min(end, len(self))
        numbers = range(start, end) if self.rows is None else self.rows[start:end].tolist()
        batch = default_collate([self.inputs.read(number) for number in numbers])
        inputs, targets = (map_leaves(lambda part: part.to(self.place), part) for part in batch)
        read = Examples(inputs, targets, self.prepare, None, self.channels_last)
        return read.slice(0, len(read))

    def all_targets(self) -> Any:
        """Read all examples for their targets."""
        numbers = range(len(self)) if self.rows is None else self.rows.tolist()
        return default_collate([self.inputs.read(number)[1] for number in numbers])

    def prepared(self) -> "Examples":
        """Return the examples themselves, which need not fit into memory."""
        return self


def chosen_of(values: Any, rows: "slice | Tensor") -> Any:
    """Return some of the examples: a tensor's, or of every tensor of a dictionary or tuple."""
    return map_leaves(lambda array: array[rows], values)


def parts_of(values: Any, size: int, count: int) -> Iterator[Any]:
    """Yield consecutive parts of ``count`` examples, each of ``size`` except the last."""
    return (chosen_of(values, slice(start, start + size)) for start in range(0, count, size))


def number_of(inputs: Any) -> int:
    """Return how many examples prepared inputs have."""
    return len(first_leaf(inputs))


def count_predictions(number: int, targets: Any) -> Tensor | int:
    """Return how many predictions some examples have, on their device, which is not waited for.

    Those are the integer targets that are not negative; with any other targets, the examples.
    """
    if isinstance(targets, Tensor) and targets.dtype == torch.int64:
        return (targets >= 0).sum()
    return number


def call_model(model: nn.Module, inputs: Any) -> Any:
    """Return a model's outputs: a dictionary are keyword arguments, a tuple is several."""
    if isinstance(inputs, Tensor):
        return model(inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(**inputs)


def call_in_bf16(model: nn.Module, inputs: Any) -> Any:
    """Return a model's outputs, computed in mixed precision, as `call_model` does.

    Tensors are in float32 again; those of an object, as Hugging Face's models return, stay.
    """
    with torch.autocast(first_leaf(inputs).device.type, torch.bfloat16):
        outputs = call_model(model, inputs)
    if not isinstance(outputs, Tensor) and type(outputs) not in (dict, tuple):
        return outputs
    return map_leaves(
        lambda output: output.float() if output.dtype == torch.bfloat16 else output, outputs
    )
