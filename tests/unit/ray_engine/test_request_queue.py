"""The worker's end of a connection, with the driver's end in the same process."""

import time
from multiprocessing.connection import Client, Listener
from threading import Thread

import pytest
from flwr.app import Message, RecordDict

from fedavg_app.flower_internals import assign_message_id
from fedavg_app.ray_engine.request_queue import RequestQueue
from fedavg_app.ray_engine.serialization import dumps, loads
from tests.support.processes import until

pytestmark = pytest.mark.usefixtures("server_identity")


@pytest.fixture
def ends():
    """The driver's connection, and the worker's queue."""
    with Listener(("127.0.0.1", 0)) as listener:
        made = []
        connecting = Thread(target=lambda: made.append(Client(listener.address)))
        connecting.start()
        accepted = listener.accept()
        connecting.join()
    with made[0] as driver:
        yield driver, RequestQueue(accepted)


def send(driver, *requests):
    driver.send_bytes(dumps(("requests", requests)))


def train_message():
    message = Message(RecordDict(), dst_node_id=2, message_type="train")
    assign_message_id(message)
    return message


def take_all(queue, count):
    taken = []
    while len(taken) < count:
        taken += [request for _, request in queue.take()]
    return taken


def test_requests_are_taken_in_order_with_the_time_they_were_received(ends):
    driver, queue = ends
    before = time.monotonic()
    send(driver, ("put_state", 1), ("put_state", 2))
    send(driver, ("put_state", 3))
    taken = []
    while len(taken) < 3:
        taken += queue.take()
    assert [request for _, request in taken] == [("put_state", n) for n in (1, 2, 3)]
    assert all(before <= received <= time.monotonic() for received, _ in taken)


def test_answers_are_sent_together_and_none_are_not_sent(ends):
    driver, queue = ends
    queue.send_answers([])
    queue.send_answers(["a", 2])
    assert loads(driver.recv_bytes()) == ("answers", ["a", 2])
    assert not driver.poll()


def test_last_message_is_returned_once_and_not_handled(ends):
    driver, queue = ends
    first, second = train_message(), train_message()
    send(driver, ("handle", first, None), ("handle", second, None))
    driver.send_bytes(dumps(("return last", None)))
    assert loads(driver.recv_bytes()) == ("returned", second.metadata.message_id)
    (request,) = take_all(queue, 1)
    assert request[1].metadata.message_id == first.metadata.message_id


@pytest.mark.parametrize("requests", [[], [("pickled_state", 4)]], ids=["none", "no message"])
def test_request_that_is_not_a_message_is_not_returned(ends, requests):
    driver, queue = ends
    send(driver, *requests)
    driver.send_bytes(dumps(("return last", None)))
    assert loads(driver.recv_bytes()) == ("returned", None)
    assert take_all(queue, len(requests)) == requests


def test_closed_connection_drops_what_is_not_begun(ends):
    driver, queue = ends
    send(driver, ("put_state", 1), ("put_state", 2))
    driver.close()
    assert until(lambda: queue.closed, 30)
    assert list(queue.take()) == []
