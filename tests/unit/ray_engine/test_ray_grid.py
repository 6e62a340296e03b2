"""The clients' states for a checkpoint, from workers without processes."""

import pickle
import time

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedavg_app.flower_internals import FIRST_NODE_ID
from fedavg_app.ray_engine import load_balancing, worker_pool
from fedavg_app.ray_engine.client_call import HandledMessage
from fedavg_app.ray_engine.client_states import ClientStates
from fedavg_app.ray_engine.pending_messages import PendingMessage
from fedavg_app.ray_engine.ray_grid import RayGrid
from fedavg_app.ray_engine.request_queue import WorkerError
from tests.support.scripted_worker import ScriptedWorker


class Grid(RayGrid):
    """While it is waited for, every worker that is not held answers one request.

    A client's state counts the messages that it has handled.
    """

    def __init__(self, folder):
        super().__init__({"round-timeout": 0.0}, 6, 2)
        self.workers = self._dispatcher.pool.workers
        self.states = {}
        for worker in self.workers:
            (folder / str(worker.number)).mkdir()
            self.states[worker] = ClientStates(2**20, folder / str(worker.number))
        self.held = []

    def wait(self, seconds):
        del seconds
        for worker in self.workers:
            if worker.unanswered and worker not in self.held:
                worker.answers = [self._answer(worker, worker.unanswered[0])]

    def _answer(self, worker, request):
        states = self.states[worker]
        if isinstance(request, PendingMessage):
            state = states.pop(request.partition)
            count = state["count"]["messages"] if state else 0
            kept = RecordDict({"count": ConfigRecord({"messages": count + 1})})
            states.put(request.partition, kept)
            return HandledMessage(Message(RecordDict(), reply_to=request.message), True, 1.0)
        name, arguments = request
        method = {"pop_state": "pop", "put_state": "put", "pickled_state": "pickled"}[name]
        try:
            return getattr(states, method)(*arguments)
        except Exception as error:
            return WorkerError(repr(error), "")

    def push(self, *clients):
        nodes = [FIRST_NODE_ID + client for client in clients]
        messages = [Message(RecordDict(), dst_node_id=node, message_type="train") for node in nodes]
        return self.push_messages(messages)

    def reply_to(self, ids, enough):
        """Wait until so many of the messages have a reply."""
        replies = []
        while len(replies) < enough:
            self.wait(0)
            replies += self.pull_messages(ids)


@pytest.fixture
def grid(monkeypatch, tmp_path):
    monkeypatch.setattr(worker_pool, "WorkerHandle", ScriptedWorker)
    monkeypatch.setattr(load_balancing, "MOVE_SECONDS", 0.0)
    return Grid(tmp_path)


def messages_handled(states):
    return {
        client: state and pickle.loads(state)["count"]["messages"]
        for client, state in states.items()
    }


def test_state_on_its_way_to_another_worker_is_waited_for(grid):
    """Worker 0 is still busy with client 0 when client 1's state is to go to worker 1."""
    grid.reply_to(grid.push(0, 1, 2, 3), enough=4)
    busy = grid.workers[0]
    grid.held = [busy]
    grid.reply_to(grid.push(0, 2), enough=1)
    grid.push(1)
    assert busy.unanswered[-1] == ("pop_state", (1,))
    grid.held = []
    assert messages_handled(grid.changed_states()) == {0: 2, 1: 1, 2: 2, 3: 1}


def test_worker_whose_answer_is_not_read_yet_is_not_taken_for_one_that_hangs(grid, monkeypatch):
    """It answered in time; what the server did since took longer than the grace period."""
    grid.reply_to(grid.push(0, 1), enough=2)
    grid._timeout = 1.0
    grid.push(0)
    (worker,) = [worker for worker in grid.workers if worker.unanswered]
    grid.wait(0)
    late = time.monotonic() + 1.0 + 2 * worker_pool.GRACE_SECONDS
    monkeypatch.setattr(worker_pool.time, "monotonic", lambda: late)
    monkeypatch.setattr(grid, "wait", lambda seconds: None)
    grid._wait_for_answers()
    assert not worker.killed
    assert not worker.unanswered


def test_client_of_a_worker_that_has_no_state_of_it_has_none(grid):
    ids = grid.push(0, 1)
    grid.reply_to(ids, enough=2)
    worker = grid.workers[0]
    grid.states[worker].pop(0)
    assert messages_handled(grid.changed_states()) == {0: None, 1: 1}
