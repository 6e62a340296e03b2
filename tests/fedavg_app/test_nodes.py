import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedavg_app.errors import ConfigError, RunError
from fedavg_app.internals import BaseGrid, error_reply, stamp
from fedavg_app.nodes import find_nodes


class AskedGrid(BaseGrid):
    """Node 100 + i answers a query with ``answers[i]``: a record's content, or an exception."""

    def __init__(self, answers, joining=0):
        self.answers = answers
        self.joining = joining
        self.replies = {}

    def get_node_ids(self):
        visible = len(self.answers) - self.joining
        self.joining = max(self.joining - 1, 0)
        return [100 + i for i in range(visible)]

    def push_messages(self, messages):
        for message in messages:
            answer = self.answers[message.metadata.dst_node_id - 100]
            key = stamp(message)
            if isinstance(answer, Exception):
                self.replies[key] = error_reply(message, f"Traceback\nValueError: {answer}")
            else:
                content = RecordDict({"node": ConfigRecord(answer)})
                self.replies[key] = Message(content, reply_to=message)
        return list(self.replies)

    def pull_messages(self, message_ids):
        return [self.replies.pop(key) for key in message_ids if key in self.replies]


def held(*numbers):
    return [{"partition-id": number} for number in numbers]


def test_nodes_are_listed_by_their_partition():
    assert find_nodes(AskedGrid(held(2, 0, 1)), 3) == [101, 102, 100]


def test_nodes_that_join_within_the_quiet_time_count():
    assert find_nodes(AskedGrid(held(0, 1, 2), joining=2), 3, quiet_seconds=5) == [100, 101, 102]


def test_too_few_nodes_name_the_exact_flag_to_add():
    with pytest.raises(ConfigError) as caught:
        find_nodes(AskedGrid(held(0, 1)), 100, quiet_seconds=0.1)
    text = str(caught.value)
    assert text.startswith("num-clients = 100: there are only 2 SuperNodes")
    flag = '--federation-config "num-supernodes=100 client-resources-num-cpus=1"'
    assert flag in text


def test_nodes_beyond_k_take_no_part(caplog):
    assert find_nodes(AskedGrid(held(0, 1, 2)), 2) == [100, 101]
    assert "1 of 3 nodes take no part" in caplog.text


def test_one_partition_on_two_nodes_is_refused():
    with pytest.raises(RunError, match="nodes 100 and 101 both hold partition-id=0"):
        find_nodes(AskedGrid(held(0, 0)), 2)


@pytest.mark.parametrize(
    "answer", [{}, {"partition-id": "1"}, {"partition-id": True}, {"partition-id": -1},
               ValueError("no partition")]
)  # fmt: skip
def test_a_partition_that_nobody_holds_is_named(answer):
    with pytest.raises(RunError, match="no node holds partition-id=1"):
        find_nodes(AskedGrid([{"partition-id": 0}, answer]), 2)
