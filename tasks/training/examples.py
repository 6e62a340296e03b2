"""`Examples`: the examples of a client or a test set, on the device that computes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

from tasks.base import Task
from tasks.data.dataset import Split


@dataclass(frozen=True)
class Examples:
    """Examples on a device, as stored or prepared for the model.

    Attributes:
        inputs: Inputs as stored or prepared; the first dimension is the examples.
        targets: Their targets.
        prepare: Turns stored inputs into the model's when they are needed; None where they are
            prepared already.
        rows: Which of the examples these are, int64; None for all.
    """

    inputs: Tensor
    targets: Tensor = field(repr=False)
    prepare: Callable[[Tensor], Tensor] | None = None
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets if self.rows is None else self.rows)

    @classmethod
    def stored(
        cls, task: Task, split: Split, device: torch.device, *, training: bool = False
    ) -> "Examples":
        """Return a data set's split on the device; on the CPU that is the mapped file itself."""
        inputs, targets = map(torch.from_numpy, (split.inputs, split.targets))
        prepare = task.augment if training and task.augment else task.prepare
        return cls(inputs.to(device), targets.to(device), prepare)

    def batches(self, size: int, *, no_single: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches that `places` describes, prepared one at a time."""
        for start, end in self.places(size, no_single=no_single):
            yield self.slice(start, end)

    def places(self, size: int, *, no_single: bool = False) -> list[tuple[int, int]]:
        """Return where consecutive batches of ``size`` start and end; the last may be smaller.

        Args:
            size: 0 for one batch of all.
            no_single: Whether a last batch of one example takes one from the batch before it, if
                that has three or more.
        """
        bounds = [*range(0, len(self), size or len(self)), len(self)]
        if no_single and size > 2 and bounds[-2] == len(self) - 1 > 0:
            bounds[-2] -= 1
        return list(pairwise(bounds))

    def slice(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Return the prepared inputs and the targets of some consecutive examples."""
        chosen: slice | Tensor = slice(start, end)
        if self.rows is not None:
            chosen = self.rows[chosen]
        inputs = self.inputs[chosen]
        if self.prepare is not None:
            inputs = self.prepare(inputs.clone() if self.rows is None else inputs)
        if inputs.dim() == 4:  # images, in the layout of `tasks.base.on_device`
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return inputs, self.targets[chosen]

    def shuffled(self, generator: torch.Generator, limit: int | None = None) -> "Examples":
        """Return the examples in an order drawn from ``generator``; the first ``limit`` of them."""
        order = torch.randperm(len(self), generator=generator)[:limit].to(self.targets.device)
        rows = order if self.rows is None else self.rows[order]
        return replace(self, rows=rows)

    def all_targets(self) -> Tensor:
        """Return the targets of all examples."""
        return self.targets if self.rows is None else self.targets[self.rows]

    def prepared(self) -> "Examples":
        """Return a copy of the examples with prepared inputs."""
        return Examples(*self.slice(0, len(self)))
