"""A worker of the Ray engine without a process."""

from collections import deque

from fedavg_app.ray_engine.worker_handle import WorkerDiedError


class ScriptedWorker:
    """A `WorkerHandle` that answers or dies when a test says so."""

    def __init__(self, number, settings):
        self.number = number
        self.ready = True
        self.queue, self.unanswered = deque(), deque()
        self.last_activity, self.return_requested = 0.0, False
        self.answers, self.dead, self.killed = [], False, False

    @property
    def load(self):
        return len(self.unanswered) + len(self.queue)

    def send_messages(self, messages):
        self._check()
        self.unanswered += messages

    def request(self, name, *arguments):
        self._check()
        self.unanswered.append((name, arguments))

    def receive(self):
        self._check()
        answers, self.answers = self.answers, []
        return [(self.unanswered.popleft(), answer) for answer in answers]

    def request_return(self):
        self.return_requested = True

    def kill(self):
        self.killed = True

    def _check(self):
        if self.dead:
            raise WorkerDiedError("the process was killed")
