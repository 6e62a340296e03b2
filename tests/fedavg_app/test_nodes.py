import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedavg_app.errors import ConfigError, RunError
from fedavg_app.internals import BaseGrid, error_reply, stamp
from fedavg_app.nodes import Roster


class AskedGrid(BaseGrid):
    """Node 100 + i answers a query with ``answers[i]``: a record's content, or an exception.

    With None it does not answer. The last ``joining`` nodes come one with every look.
    """

    def __init__(self, answers, joining=0):
        self.answers = answers
        self.joining = joining
        self.replies = {}

    def get_node_ids(self):
        visible = len(self.answers) - self.joining
        self.joining = max(self.joining - 1, 0)
        return [100 + i for i in range(visible)]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            answer = self.answers[message.metadata.dst_node_id - 100]
            ids.append(key := stamp(message))
            if answer is None:
                continue
            if isinstance(answer, Exception):
                self.replies[key] = error_reply(message, f"Traceback\nValueError: {answer}")
            else:
                content = RecordDict({"node": ConfigRecord(answer)})
                self.replies[key] = Message(content, reply_to=message)
        return ids

    def pull_messages(self, message_ids):
        return [self.replies.pop(key) for key in message_ids if key in self.replies]


def find_nodes(grid, num_clients, min_nodes=0, quiet_seconds=3.0):
    """The nodes that a run begins with, in the order of their partitions."""
    roster = Roster(grid, num_clients)
    roster.assemble(min_nodes, quiet_seconds)
    return [roster.holders[client] for client in roster.clients]


def held(*numbers):
    return [{"partition-id": number} for number in numbers]


def test_nodes_are_listed_by_their_partition():
    assert find_nodes(AskedGrid(held(2, 0, 1)), 3) == [101, 102, 100]


def test_queries_that_a_grid_refuses_all_at_once_end_in_one_line(monkeypatch):
    grid = AskedGrid(held(0, 1))
    monkeypatch.setattr(grid, "push_messages", lambda messages: [])
    with pytest.raises(RunError, match=r"no node holds partition-id=0 \(2 of 2 missing\)"):
        find_nodes(grid, 2, quiet_seconds=0.1)


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


def assembled(grid, num_clients, min_nodes):
    roster = Roster(grid, num_clients)
    roster.assemble(min_nodes, quiet_seconds=0.1)
    return roster


def test_a_run_can_begin_before_all_have_come():
    grid = AskedGrid(held(2, 0, 1))
    grid.get_node_ids = lambda: [100, 101]
    roster = assembled(grid, 3, 2)
    assert roster.holders == {2: 100, 0: 101}
    del grid.get_node_ids  # now it sees all three
    roster.look()
    assert roster.holders == {2: 100, 0: 101, 1: 102}
    assert roster.clients == [0, 1, 2]


def test_too_few_for_the_beginning_are_named():
    with pytest.raises(ConfigError, match="min-nodes = 2: there are only 1 SuperNodes"):
        assembled(AskedGrid(held(0)), 3, 2)


def test_one_that_never_answers_is_waited_for_only_if_it_is_needed():
    assert assembled(AskedGrid([*held(0, 1), None]), 3, 2).clients == [0, 1]


def test_nodes_that_go_and_come_back_under_another_id(caplog):
    grid = AskedGrid(held(0, 1, 2, 1))
    grid.get_node_ids = lambda: [100, 101, 102]
    roster = assembled(grid, 3, 0)
    grid.get_node_ids = lambda: [100, 102]
    roster.look()
    assert roster.clients == [0, 2]
    assert "node 101, of client 1, has gone" in caplog.text
    grid.get_node_ids = lambda: [100, 102, 103]
    roster.look()
    assert roster.holders[1] == 103


def test_a_new_node_takes_the_place_of_one_that_has_not_been_missed_yet(caplog):
    grid = AskedGrid(held(0, 1, 1))
    grid.get_node_ids = lambda: [100, 101]
    roster = assembled(grid, 2, 0)
    del grid.get_node_ids
    roster.look()
    assert roster.holders == {0: 100, 1: 102}
    assert "client 1 is now node 102, not 101" in caplog.text


def test_a_run_without_a_node_waits_and_then_ends_with_one_line():
    grid = AskedGrid(held(0))
    roster = assembled(grid, 1, 0)
    grid.get_node_ids = list
    with pytest.raises(RunError, match=r"no SuperNode was there for 0.1 s; start SuperNodes"):
        roster.wait(0.1)
    del grid.get_node_ids
    roster.wait(0.1)
    assert roster.clients == [0]
