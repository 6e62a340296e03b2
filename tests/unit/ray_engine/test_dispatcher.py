"""The dispatcher without Ray: workers that are lists of requests."""

import logging
import math

import pytest
from flwr.app import Message, RecordDict

from fedavg_app.errors import RunError
from fedavg_app.flower_internals import FIRST_NODE_ID, assign_message_id
from fedavg_app.ray_engine import worker_pool
from fedavg_app.ray_engine.client_call import HandledMessage
from fedavg_app.ray_engine.dispatcher import Dispatcher
from fedavg_app.ray_engine.pending_messages import MessageBatch, PendingMessage
from fedavg_app.ray_engine.request_queue import WorkerError
from fedavg_app.ray_engine.worker import WorkerSettings
from fedavg_app.ray_engine.worker_handle import WorkerDiedError
from fedavg_app.ray_engine.worker_pool import MAX_FAILED_STARTS
from tests.support.scripted_worker import ScriptedWorker

pytestmark = pytest.mark.usefixtures("server_identity")


@pytest.fixture
def dispatcher(monkeypatch):
    monkeypatch.setattr(worker_pool, "WorkerHandle", ScriptedWorker)
    return Dispatcher(2, settings())


def settings():
    return WorkerSettings(1, {}, 10, 0, 0.0, "", b"")


def submit(dispatcher, *partitions):
    messages = []
    for partition in partitions:
        node = FIRST_NODE_ID + partition
        messages.append(Message(RecordDict(), dst_node_id=node, message_type="train"))
        assign_message_id(messages[-1])
    dispatcher.submit(messages, MessageBatch(math.inf, math.inf, []))
    return messages


def partitions(requests):
    return [request.partition for request in requests if isinstance(request, PendingMessage)]


def reply_to(pending, has_state=False):
    return HandledMessage(Message(RecordDict(), reply_to=pending.message), has_state, 0.001)


def test_messages_are_shared_out_and_replies_kept_by_message_id(dispatcher):
    messages = submit(dispatcher, 0, 1, 2, 3)
    assert [partitions(worker.unanswered) for worker in dispatcher.pool.workers] == [[0, 1], [2, 3]]
    for worker in dispatcher.pool.workers:
        worker.answers = [reply_to(pending) for pending in worker.unanswered]
    dispatcher.receive()
    assert dispatcher.replies.keys() == {message.metadata.message_id for message in messages}
    assert dispatcher.owner == {}


def test_client_with_a_state_is_handled_by_the_worker_that_keeps_it(dispatcher):
    submit(dispatcher, 5)
    (worker,) = [worker for worker in dispatcher.pool.workers if worker.unanswered]
    worker.answers = [reply_to(worker.unanswered[0], has_state=True)]
    dispatcher.receive()
    assert dispatcher.owner == {5: worker}
    assert dispatcher.changed == {5}
    submit(dispatcher, 5)
    assert partitions(worker.unanswered) == [5]


def test_first_message_of_a_dead_worker_gets_an_error_and_the_others_go_to_its_replacement(
    dispatcher, caplog
):
    messages = submit(dispatcher, 0, 1, 2, 3)
    lost = dispatcher.pool.workers[0]
    dispatcher.owner[1] = lost
    lost.dead = True
    dispatcher.receive()
    reply = dispatcher.replies[messages[0].metadata.message_id]
    assert reply.error.reason == "worker 0 died: the process was killed"
    assert len(dispatcher.replies) == 1
    assert lost.killed
    replacement = dispatcher.pool.workers[0]
    assert (replacement.number, replacement is lost) == (0, False)
    assert dispatcher.owner == {}
    assert dispatcher.changed == {1}
    line = "worker 0 died: the process was killed; it is replaced and its clients lose their state"
    assert line in caplog.text
    dispatcher.send_queued()
    assert partitions(replacement.unanswered) == [1]
    assert partitions(dispatcher.pool.workers[1].unanswered) == [2, 3]


def test_dead_worker_without_messages_costs_no_reply(dispatcher):
    dispatcher.owner[7] = lost = dispatcher.pool.workers[1]
    lost.dead = True
    dispatcher.receive()
    assert dispatcher.replies == {}
    assert dispatcher.owner == {}


def test_run_ends_where_workers_die_as_they_start(dispatcher):
    def start():
        raise WorkerDiedError("out of memory")

    for _ in range(MAX_FAILED_STARTS):
        dispatcher.pool.workers[0].ready = False
        dispatcher.pool.attempt(dispatcher.pool.workers[0], start)
    dispatcher.pool.workers[0].ready = False
    with pytest.raises(RunError, match=r"^no worker can start: out of memory$"):
        dispatcher.pool.attempt(dispatcher.pool.workers[0], start)


def test_failed_request_ends_the_run_with_one_line_and_logs_the_traceback(dispatcher, caplog):
    worker = dispatcher.pool.workers[1]
    worker.request("evaluate", "arrays")
    worker.answers = [WorkerError("ValueError: broken", "Traceback ...\nValueError: broken\n")]
    with pytest.raises(RunError, match=r"^worker 1 cannot evaluate: ValueError: broken$"):
        dispatcher.receive()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message == "worker 1 raised:\nTraceback ...\nValueError: broken"


def test_message_that_a_worker_fails_to_handle_gets_an_error_with_the_traceback(dispatcher):
    (message,) = submit(dispatcher, 0)
    (worker,) = [worker for worker in dispatcher.pool.workers if worker.unanswered]
    worker.answers = [WorkerError("OSError: full", "Traceback ...\nOSError: full\n")]
    dispatcher.receive()
    reply = dispatcher.replies[message.metadata.message_id]
    assert reply.error.reason == "Traceback ...\nOSError: full\n"
