import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.flower_internals import BaseGrid, assign_message_id, error_reply
from fedavg_app.partitioning import DataDigests
from fedavg_app.server.node_registry import NodeQuery, NodeRegistry
from tests.support.one_line import one_line

pytestmark = pytest.mark.usefixtures("server_identity", "clock")


class QueryGrid(BaseGrid):
    """Node 100 + i answers a query with ``answers[i]``: a record's content, or an exception.

    With None it does not answer. The last ``joining`` nodes connect one by one, one per look. An
    answer arrives ``looks`` looks after the first.
    """

    def __init__(self, answers, joining=0, looks=0):
        self.answers = answers
        self.joining = joining
        self.looks = looks
        self.replies, self.due = {}, {}
        self.queries = 0

    def get_node_ids(self):
        connected = len(self.answers) - self.joining
        self.joining = max(self.joining - 1, 0)
        return [100 + i for i in range(connected)]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            self.queries += 1
            answer = self.answers[message.metadata.dst_node_id - 100]
            ids.append(key := assign_message_id(message))
            if answer is None:
                continue
            if isinstance(answer, Exception):
                self.replies[key] = error_reply(message, f"Traceback\nValueError: {answer}")
            else:
                content = RecordDict({"node": ConfigRecord(answer)})
                self.replies[key] = Message(content, reply_to=message)
        return ids

    def pull_messages(self, message_ids):
        wanted = set(message_ids) & self.replies.keys()
        for key in wanted:
            self.due[key] = self.due.get(key, self.looks) - 1
        return [self.replies.pop(key) for key in wanted if self.due[key] < 0]


def partitions(*numbers):
    return [{"partition-id": number} for number in numbers]


def started(grid, num_clients, min_nodes=0, quiet_seconds=3.0):
    nodes = NodeRegistry(grid, num_clients)
    nodes.wait_for_start(min_nodes, quiet_seconds)
    return nodes


def find_nodes(*arguments, **keywords):
    """Return the nodes that a run begins with, in the order of their partitions."""
    nodes = started(*arguments, **keywords)
    return [nodes.by_client[client] for client in nodes.clients]


def test_queries_that_the_grid_refuses_end_in_one_line(monkeypatch):
    grid = QueryGrid(partitions(0, 1))
    monkeypatch.setattr(grid, "push_messages", lambda messages: [])
    with one_line(RunError, "no node has partition-id=0 (2 of 2 missing)"):
        find_nodes(grid, 2)


def test_query_that_could_not_be_sent_is_sent_again(monkeypatch):
    grid = QueryGrid(partitions(0, 1))
    failures, push = [1, 2], grid.push_messages

    def fail_at_first(messages):
        return [""] * len(messages) if failures and failures.pop() else push(messages)

    monkeypatch.setattr(grid, "push_messages", fail_at_first)
    assert find_nodes(grid, 2) == [100, 101]


def test_nodes_that_connect_within_the_quiet_time_count():
    assert find_nodes(QueryGrid(partitions(0, 1, 2), joining=2), 3) == [100, 101, 102]


def test_too_few_nodes_name_the_exact_flag_to_add(clock):
    with pytest.raises(ConfigError) as caught:
        find_nodes(QueryGrid(partitions(0, 1)), 100, quiet_seconds=3.0)
    text = str(caught.value)
    assert text.startswith("num-clients = 100: there are only 2 SuperNodes")
    flag = '--federation-config "num-supernodes=100 client-resources-num-cpus=1"'
    assert flag in text
    assert clock.now == pytest.approx(3.0, abs=0.1)


def test_node_with_a_partition_in_use_is_refused_and_the_run_begins_with_the_others(caplog):
    grid = QueryGrid(partitions(0, 0, 1), joining=1)
    nodes = started(grid, 2)
    assert nodes.by_client == {0: 100, 1: 102}
    reason = "node 100 has partition-id=0 already; give each SuperNode a partition of its own"
    assert [message for message in caplog.messages if reason in message] == [
        f"node 101 is not used: {reason} with --node-config"
    ]
    assert nodes.take_refusals() == {101: f"{reason} with --node-config"}
    for _ in range(3):
        nodes.update()
    assert nodes.take_refusals() == {}
    assert caplog.text.count("is not used: node") == 1


@pytest.mark.parametrize(
    "answer", [{}, {"partition-id": "1"}, {"partition-id": True}, {"partition-id": -1},
               ValueError("no partition")]
)  # fmt: skip
def test_partition_that_no_node_has_is_named(answer):
    with pytest.raises(RunError, match="no node has partition-id=1"):
        find_nodes(QueryGrid([{"partition-id": 0}, answer]), 2)


def test_run_can_start_with_min_nodes_and_the_others_connect_later():
    grid = QueryGrid(partitions(2, 0, 1))
    grid.get_node_ids = lambda: [100, 101]
    nodes = started(grid, 3, min_nodes=2)
    assert nodes.by_client == {2: 100, 0: 101}
    del grid.get_node_ids  # now all three are connected
    nodes.update()
    assert nodes.by_client == {2: 100, 0: 101, 1: 102}
    assert nodes.clients == [0, 1, 2]


def test_node_keeps_its_partition_while_it_is_connected_and_then_another_takes_it(caplog):
    grid = QueryGrid(partitions(0, 1, 1, 1))
    grid.get_node_ids = lambda: [100, 101]
    nodes = started(grid, 2)
    grid.get_node_ids = lambda: [100, 101, 102, 103]
    nodes.update()
    assert nodes.by_client == {0: 100, 1: 101}
    assert set(nodes.take_refusals()) == {102, 103}
    grid.get_node_ids = lambda: [100, 102, 103]
    nodes.update()
    assert nodes.by_client == {0: 100, 1: 102}
    assert "client 1 is now node 102, not 101" in caplog.text
    assert set(nodes.take_refusals()) == {103}  # whose partition another node has now
    # The first holder is back, and is refused.
    grid.get_node_ids = lambda: [100, 101, 102, 103]
    nodes.update()
    assert nodes.by_client == {0: 100, 1: 102}
    assert set(nodes.take_refusals()) == {101}


def test_run_without_a_node_waits_and_then_ends_with_one_line(clock):
    grid = QueryGrid(partitions(0))
    nodes = started(grid, 1)
    grid.get_node_ids = list
    with pytest.raises(RunError, match=r"no SuperNode was connected for 5 s; start SuperNodes"):
        nodes.wait_for_any(5)
    assert clock.now == pytest.approx(5.0, abs=0.1)
    del grid.get_node_ids
    nodes.wait_for_any(5)
    assert nodes.clients == [0]


def test_own_data_of_a_node_count_while_it_holds_its_partition():
    answers = partitions(0, 0)
    answers[0] |= {"own-data": "a8", "own-examples": 70}
    answers[1] |= {"own-data": "b9", "own-examples": 3}
    grid = QueryGrid(answers)
    grid.get_node_ids = lambda: [100]
    nodes = started(grid, 1)
    grid.get_node_ids = lambda: [100, 101]
    nodes.update()
    assert set(nodes.take_refusals()) == {101}
    assert nodes.own_data == {0: ("a8", 70)}
    grid.get_node_ids = lambda: [101]
    nodes.update()
    assert (nodes.by_client, nodes.own_data) == ({0: 101}, {0: ("b9", 3)})


def test_node_whose_query_failed_takes_no_part_and_the_log_says_why(caplog):
    grid = QueryGrid([*partitions(0), ValueError("data-dir = 'x' is not a directory")])
    grid.get_node_ids = lambda: [100, 101]
    assert started(grid, 1).clients == [0]
    assert "node 101 is not used: ValueError: data-dir = 'x' is not a directory" in caplog.text


@pytest.mark.parametrize("own", [{}, {"own-examples": "70"}, {"own-examples": [7]}])
def test_malformed_answer_about_own_data_counts_as_none(own):
    answers = partitions(0)
    answers[0] |= {"own-data": "a8", **own}
    nodes = started(QueryGrid(answers), 1)
    assert (nodes.clients, nodes.own_data) == ([0], {})


@pytest.mark.parametrize("looks", [0, 1, 3])
@pytest.mark.parametrize("before", [ValueError("no such file"), {"partition-id": 0}])
def test_repaired_node_takes_part_some_rounds_later(caplog, before, looks):
    """It keeps its node id, so the server does not see it leave; answers take time."""
    grid = QueryGrid([*partitions(0), before], looks=looks)
    nodes = started(grid, 2, min_nodes=1)
    for _ in range(20):
        nodes.wait_for_any(5)
    assert nodes.clients == [0]
    assert caplog.text.count("node 101 is not used") == 1
    assert len(grid.replies) <= 1, "one query at a time"
    grid.answers[1] = {"partition-id": 1}
    for _ in range(10):
        nodes.wait_for_any(5)
    assert nodes.by_client == {0: 100, 1: 101}
    queries = grid.queries
    nodes.take_refusals()
    nodes.wait_for_any(5)
    assert (grid.queries, nodes.take_refusals()) == (queries, {})


def test_node_that_does_not_answer_for_ten_minutes_is_queried_again(clock):
    grid = QueryGrid([*partitions(0), None])
    nodes = started(grid, 2, min_nodes=1)
    grid.answers[1] = {"partition-id": 1}
    nodes.wait_for_any(5)
    assert nodes.clients == [0]
    clock.now += 601
    nodes.wait_for_any(5)
    assert nodes.clients == [0, 1]


OURS, THEIRS = DataDigests("a", "b"), DataDigests("a", "c")


def with_digests(*found):
    """Return the answers of nodes 0, 1, ... that have these digests."""
    return [
        {"partition-id": number, "data": digests.data, "partition": digests.partition}
        for number, digests in enumerate(found)
    ]


def checked(grid, num_clients, min_nodes=0):
    def compare(digests):
        OURS.check(digests, RunConfig(num_clients=num_clients, partition="mine:split"))

    nodes = NodeRegistry(grid, num_clients, NodeQuery(ConfigRecord({"seed": 1}), compare))
    nodes.wait_for_start(min_nodes, 3.0)
    return nodes


def test_device_with_other_data_takes_no_part(monkeypatch, caplog):
    """It cannot end the run by what it claims, as in a simulation (test_same_data.py)."""
    monkeypatch.setattr("fedavg_app.server.node_registry.is_network_grid", lambda _: True)
    nodes = checked(QueryGrid(with_digests(OURS, THEIRS, OURS)), 3, min_nodes=2)
    assert nodes.clients == [0, 2]
    assert "node 101 is not used: partition = 'mine:split'" in caplog.text
    with pytest.raises(RunError, match="it gives the server and a client different splits"):
        checked(QueryGrid(with_digests(THEIRS, THEIRS)), 2)


def test_device_with_its_own_data_takes_no_part_where_examples_are_set_aside(monkeypatch):
    monkeypatch.setattr("fedavg_app.server.node_registry.is_network_grid", lambda _: True)
    answers = partitions(0, 1)
    answers[1] |= {"own-data": "a8", "own-examples": 70}

    def begun(min_nodes):
        nodes = NodeRegistry(QueryGrid(answers), 2, NodeQuery(validation=0.1))
        nodes.wait_for_start(min_nodes, 3.0)
        return nodes

    assert begun(1).clients == [0]
    with one_line(RunError, "validation = 0.1: it has data of its own"):
        begun(2)
