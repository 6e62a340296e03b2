"""Messages handled together: greenlets, their errors and deadlines, without Ray."""

import math
import time

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedavg_app.flower_internals import assign_message_id
from fedavg_app.ray_engine import joint_calls
from fedavg_app.ray_engine.client_call import ClientCall
from fedavg_app.ray_engine.joint_calls import handle_together
from tasks.local_sgd import joint_trainer
from tests.unit.tasks.test_vectorised import EPOCHS, MNIST_LOGISTIC, make_clients

pytestmark = pytest.mark.usefixtures("server_identity")

CLIENTS, START = make_clients(MNIST_LOGISTIC)


class Handler:
    """A ClientApp that trains its client and counts in its state; ``hooks`` change what it does."""

    def __init__(self, before=lambda number: None, after=lambda number: None):
        self.before, self.after = before, after
        self.trained = {}

    def __call__(self, message, context):
        number = context.node_config["partition-id"]
        context.state["count"] = ConfigRecord({"n": number})
        self.before(number)
        self.trained[number] = CLIENTS[number].fit(START, EPOCHS)[0]
        self.after(number)
        return Message(RecordDict(), reply_to=message)


def make_calls(deadline=math.inf):
    calls = []
    for number in range(len(CLIENTS)):
        message = Message(RecordDict(), dst_node_id=1000 + number, message_type="train")
        assign_message_id(message)
        context = Context(1, 1000 + number, {"partition-id": number}, RecordDict(), {})
        calls.append(ClientCall(message, context, deadline))
    return calls


@pytest.fixture(scope="module", autouse=True)
def _first_pass(server_identity):
    """Do what takes seconds in a process's first pass, before deadlines are tested."""
    list(handle_together(make_calls(), Handler()))


@pytest.fixture
def passes(monkeypatch):
    """The number of clients of every vectorised pass."""
    train, sizes = joint_calls.train_together, []

    def counted(works, before_step):
        sizes.append(len(works))
        return train(works, before_step)

    monkeypatch.setattr(joint_calls, "train_together", counted)
    return sizes


def fail_for(number, error):
    def hook(client):
        if client == number:
            raise error

    return hook


def assert_trained(handler, numbers):
    assert set(handler.trained) == set(numbers)
    for number in numbers:
        for ours, alone in zip(
            handler.trained[number], CLIENTS[number].fit(START, EPOCHS)[0], strict=True
        ):
            np.testing.assert_allclose(ours, alone, atol=1e-6)


def test_clients_are_trained_in_one_pass_and_answered_in_order(passes):
    handler, calls = Handler(), make_calls()
    assert list(handle_together(calls, handler)) == calls
    assert passes == [4]
    assert_trained(handler, range(4))
    for number, call in enumerate(calls):
        assert not call.reply.has_error()
        assert call.reply.metadata.src_node_id == 1000 + number
        assert call.state["count"]["n"] == number
        assert call.seconds > 0
    assert joint_trainer.get() is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_exception_of_one_client_is_the_error_of_its_reply_alone(passes, when):
    handler = Handler(**{when: fail_for(2, ValueError("broken disk"))})
    calls = list(handle_together(make_calls(), handler))
    assert [call.reply.has_error() for call in calls] == [False, False, True, False]
    assert calls[2].reply.error.reason.endswith("\nValueError: broken disk\n")
    assert calls[2].state["count"]["n"] == 2  # a client that raises keeps its state
    assert passes == [3 if when == "before" else 4]
    assert_trained(handler, [0, 1, 3] if when == "before" else range(4))


def test_exception_of_the_pass_is_the_error_of_each_of_its_clients(monkeypatch):
    def train(works, before_step):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(joint_calls, "train_together", train)
    calls = list(handle_together(make_calls(), Handler()))
    for call in calls:
        assert "in fit" in call.reply.error.reason
        assert call.reply.error.reason.strip().endswith("RuntimeError: out of memory")


def test_clients_with_other_settings_are_trained_in_passes_of_their_own(passes):
    def handler(message, context):
        number = context.node_config["partition-id"]
        CLIENTS[number].fit(START, {**EPOCHS, "learning-rate": 0.1 * (1 + number % 2)})
        return Message(RecordDict(), reply_to=message)

    list(handle_together(make_calls(), handler))
    assert passes == [2, 2]


def test_client_that_trains_twice_or_not_at_all_gets_its_reply(passes):
    def after(number):
        if number == 1:
            handler.trained["again"] = CLIENTS[1].fit(START, EPOCHS)[0]

    def mod(message, context):
        if context.node_config["partition-id"] == 3:
            return Message(RecordDict(), reply_to=message)
        return handler(message, context)

    handler = Handler(after=after)
    calls = list(handle_together(make_calls(), mod))
    assert not any(call.reply.has_error() for call in calls)
    assert passes == [3, 1]
    for first, second in zip(handler.trained[1], handler.trained.pop("again"), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-6)
    assert_trained(handler, [0, 1, 2])


def reasons(calls):
    return [call.reply.error.reason if call.reply.has_error() else "" for call in calls]


LATE, NOT_BEGUN = (
    f"{start} the round's deadline" for start in ("still at work at", "not begun before")
)


def test_deadline_interrupts_a_client_and_those_that_wait_or_have_not_begun():
    handler = Handler(before=lambda number: time.sleep(60) if number == 1 else None)
    started = time.monotonic()
    calls = list(handle_together(make_calls(started + 1), handler))
    assert 1 <= time.monotonic() - started < 30
    assert reasons(calls) == [LATE, LATE, NOT_BEGUN, NOT_BEGUN]
    assert not any(call.state for call in calls)  # as it was before
    assert handler.trained == {}


def test_deadline_ends_a_pass(monkeypatch):
    def train(works, before_step):
        while True:
            before_step()
            time.sleep(0.01)

    monkeypatch.setattr(joint_calls, "train_together", train)
    started = time.monotonic()
    calls = list(handle_together(make_calls(started + 1), Handler()))
    assert 1 <= time.monotonic() - started < 30
    assert reasons(calls) == [LATE] * 4
    assert not any(call.state for call in calls)


def test_deadline_interrupts_clients_after_the_pass():
    handler = Handler(after=lambda number: time.sleep(60) if number == 2 else None)
    started = time.monotonic()
    calls = list(handle_together(make_calls(started + 4), handler))
    assert reasons(calls) == ["", "", LATE, LATE]
    assert [bool(call.state) for call in calls] == [True, True, False, False]


def test_client_that_is_interrupted_while_it_waits_ends_what_it_has_begun():
    ended = []

    def handler(message, context):
        try:
            CLIENTS[0].fit(START, EPOCHS)
        finally:
            ended.append(context.node_config["partition-id"])

    def fail(works, before_step):
        time.sleep(1)
        before_step()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_calls, "train_together", fail)
        list(handle_together(make_calls(time.monotonic() + 0.5), handler))
    assert ended == [0, 1, 2, 3]
