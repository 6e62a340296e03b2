"""Local SGD of many clients in one vectorised pass: `torch.func.vmap` over the gradient.

The clients' weights are stacked, and each step computes all their gradients at once. That pays
where one client's batch does not keep the device busy. Every client takes its own batches, and as
many steps as it would alone. Results equal those of `TaskClient.run_sgd` up to rounding, since sums
run in another order.

A batch smaller than the largest one is filled up with rows whose targets are ignored. The clients
are sorted by their number of steps, so that those still training in a step are the first ones; the
weights of the others are not touched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from tasks.base import Task
from tasks.local_sgd import Batches, LocalSGD, Settings, Trained
from tasks.transfers import to_arrays, to_tensor
from tasks.weight_update import apply_gradients

# A target that is not predicted: `torch.nn.functional.cross_entropy` ignores it by default.
IGNORED = -100


def group_alike(clients: Sequence[LocalSGD]) -> list[list[int]]:
    """Return the places of clients that `train_together` can train together, group by group."""
    groups: dict[tuple[int, Settings], list[int]] = {}
    for place, client in enumerate(clients):
        groups.setdefault((id(client.model), client.settings), []).append(place)
    return list(groups.values())


def train_together(
    clients: Sequence[LocalSGD], before_step: Callable[[], None] = lambda: None
) -> list[Trained]:
    """Train clients in one pass.

    Args:
        clients: At least one; all have the same task, model and settings. Their states are emptied.
        before_step: Called before each step; what it raises ends the pass.

    Returns:
        What each client's training gave, in the order of ``clients``.

    Raises:
        RuntimeError: `vmap` cannot do the task's model or loss; see `tasks.vectorised_check`.
    """
    order = sorted(range(len(clients)), key=lambda place: -clients[place].batches.steps)
    trained = _train_sorted([clients[place] for place in order], before_step)
    return [one for _, one in sorted(zip(order, trained, strict=True), key=lambda pair: pair[0])]


def _train_sorted(clients: Sequence[LocalSGD], before_step: Callable[[], None]) -> list[Trained]:
    """Train clients that are sorted by their number of steps, the most first."""
    task, model, settings = clients[0].task, clients[0].model, clients[0].settings
    model.train()
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    batches = _StackedBatches.of([client.batches for client in clients])
    state = _stack_states(clients)
    weights = [state[name] for name in names]
    fixed = {name: array for name, array in state.items() if name not in names}
    sent = [weight.clone() for weight in weights] if settings.proximal_mu else []
    buffers = _stack_momentum(clients, names, weights) if settings.momentum else []
    total = torch.zeros(len(clients), device=batches.targets.device)
    gradient_and_loss = _vectorised_gradient(task, model)
    for step in range(clients[0].batches.steps):
        before_step()
        training = sum(client.batches.steps > step for client in clients)
        # Views of the arrays of those that are still training.
        w, v, w0 = ([a[:training] for a in arrays] for arrays in (weights, buffers, sent))
        gradients, losses = gradient_and_loss(
            dict(zip(names, w, strict=True)),
            {name: array[:training] for name, array in fixed.items()},
            *batches.of_step(step, training),
        )
        apply_gradients(
            w,
            list(gradients.values()),
            settings.learning_rate,
            momentum=settings.momentum,
            buffers=v,
            proximal_mu=settings.proximal_mu,
            sent=w0,
            weight_decay=settings.weight_decay,
        )
        total[:training] += losses
    losses_sum, *arrays = to_arrays([total, *state.values(), *buffers])
    return [
        Trained(
            dict(zip(state, (array[place] for array in arrays), strict=False)),
            dict(zip(names, (array[place] for array in arrays[len(state) :]), strict=False)),
            float(losses_sum[place]) / client.batches.steps,
        )
        for place, client in enumerate(clients)
    ]


def _vectorised_gradient(
    task: Task, model: nn.Module
) -> Callable[..., tuple[dict[str, Tensor], Tensor]]:
    """Return the function (weights, fixed arrays, inputs, targets) -> (gradients, losses).

    All of them have the clients as their first dimension.
    """

    def loss(
        weights: dict[str, Tensor], fixed: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> Tensor:
        return task.loss(functional_call(model, {**weights, **fixed}, (inputs,)), targets)

    return vmap(grad_and_value(loss))


def _stack_states(clients: Sequence[LocalSGD]) -> dict[str, Tensor]:
    """Return the clients' arrays stacked by name; each array is freed as soon as it is stacked."""
    return {
        name: torch.stack([client.state.pop(name) for client in clients])
        for name in list(clients[0].state)
    }


def _stack_momentum(
    clients: Sequence[LocalSGD], names: Sequence[str], weights: Sequence[Tensor]
) -> list[Tensor]:
    stacked = [torch.zeros_like(weight) for weight in weights]
    for place, client in enumerate(clients):
        for name, buffer in zip(names, stacked, strict=True):
            if name in client.momentum:
                buffer[place] = to_tensor(client.momentum[name], buffer.device)
    return stacked


@dataclass(frozen=True)
class _StackedBatches:
    """The batches of several clients.

    Attributes:
        inputs: The inputs of all clients, and one of zeros.
        targets: Their targets, and an ignored one.
        rows: The row of each example of a batch, int64 (steps, clients, batch size); the last row
            where a client's batch has no such example.
    """

    inputs: Tensor
    targets: Tensor
    rows: Tensor

    @classmethod
    def of(cls, clients: Sequence[Batches]) -> "_StackedBatches":
        inputs = [client.inputs for client in clients]
        targets = [client.targets for client in clients]
        count = sum(map(len, targets))
        within = torch.arange(max(int(client.size.max()) for client in clients))
        steps = max(client.steps for client in clients)
        rows = torch.full((steps, len(clients), len(within)), count)
        start = 0
        for place, client in enumerate(clients):
            found = start + client.first[:, None] + within
            exists = within < client.size[:, None]
            rows[: client.steps, place] = torch.where(exists, found, count)
            start += len(client.targets)
        return cls(
            torch.cat([*inputs, torch.zeros_like(inputs[0][:1])]),
            torch.cat([*targets, torch.full_like(targets[0][:1], IGNORED)]),
            to_tensor(rows.numpy(), targets[0].device),
        )

    def of_step(self, step: int, clients: int) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of the first clients, (clients, batch size, ...)."""
        rows = self.rows[step, :clients]
        return self.inputs[rows], self.targets[rows]
