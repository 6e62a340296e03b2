"""Messages for several clients, handled together: what they train is trained in one pass.

Each client's ClientApp, its mods included, runs in a greenlet of its own until `TaskClient.fit`
hands over its steps of SGD. Once all clients have done so, `tasks.vectorised` trains them; then one
after the other goes on with what it got. All this is on one thread, and only one client's code runs
at a time, up to where it hands over.
"""

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from greenlet import greenlet

from fedavg_app.ray_engine.client_call import ClientCall, Handler
from fedavg_app.ray_engine.deadline import check_deadline
from tasks.local_sgd import LocalSGD, Trained, joint_trainer
from tasks.vectorised import group_alike, train_together


def handle_together(calls: Sequence[ClientCall], handler: Handler) -> Iterator[ClientCall]:
    """Handle the calls' messages; yield each call once it has its reply, in their order.

    What one client raises is the error of its reply alone. If the pass itself raises, for example
    for want of memory, `fit` raises `JointTrainingError` for each client that it was to train.
    """
    clients = [_Client(call, handler) for call in calls]
    for client in clients:
        client.resume()
    for client in clients:
        while client.work is not None:
            if client.outcome is None:
                _train([one for one in clients if one.work and not one.outcome])
            client.resume()
        yield client.call


class JointTrainingError(RuntimeError):
    """The vectorised pass raised; the message is its traceback."""


class _Client:
    """One client's greenlet.

    Attributes:
        call: Its message.
        work: The steps that it has handed over and waits for; None while it does not wait.
        outcome: What came of them, or the traceback if the pass raised; None as long as they are
            not done.
    """

    def __init__(self, call: ClientCall, handler: Handler) -> None:
        self.call = call
        self.work: LocalSGD | None = None
        self.outcome: Trained | str | None = None
        self._hub = greenlet.getcurrent()
        self._greenlet = greenlet(partial(self._run, handler))

    def resume(self) -> None:
        """Let it run until it hands over steps, or has its reply."""
        outcome, self.outcome, self.work = self.outcome, None, None
        self.call.attempt(partial(self._greenlet.switch, outcome))
        if self.call.reply is not None:
            self.work = None
            if not self._greenlet.dead:  # the deadline came while it waited
                with suppress(Exception):
                    self._greenlet.throw()

    def _run(self, handler: Handler, _: None) -> None:
        joint_trainer.set(self._train)  # in this greenlet's own context
        self.call.reply = handler(self.call.message, self.call.context)

    def _train(self, work: LocalSGD) -> Trained:
        self.work = work
        outcome: Trained | str = self._hub.switch()
        if isinstance(outcome, str):
            raise JointTrainingError(outcome)
        return outcome


def _train(clients: Sequence[_Client]) -> None:
    """Train the clients in as few passes as their settings allow."""
    for places in group_alike([client.work for client in clients if client.work]):
        group = [clients[place] for place in places]
        started = time.monotonic()
        deadline = min(client.call.deadline for client in group)
        outcomes: Sequence[Trained | str]
        try:
            outcomes = train_together(
                [client.work for client in group if client.work], partial(check_deadline, deadline)
            )
        except Exception:
            outcomes = [traceback.format_exc()] * len(group)
        for client, outcome in zip(group, outcomes, strict=True):
            client.outcome = outcome
            client.call.seconds += (time.monotonic() - started) / len(group)
