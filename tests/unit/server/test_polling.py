from fedavg_app.server.polling import poll_replies, send, send_and_receive
from tests.support.scripted_grid import ScriptedGrid, training_messages


def test_pauses_grow_while_no_reply_comes(clock):
    grid = ScriptedGrid(clock, [1.0])
    send_and_receive(grid, training_messages([10]))
    # At the shortest pause it would be 500 polls; growing by half each time it is about 15.
    assert 10 < grid.num_polls < 20


def test_message_that_could_not_be_sent_is_not_waited_for(clock):
    class PartlyRefusingGrid(ScriptedGrid):
        def push_messages(self, messages):
            return [*super().push_messages(messages[:1]), ""]

    grid = PartlyRefusingGrid(clock, [0.0, 0.0])
    ids = send(grid, training_messages([10, 11]))
    assert ids[1] is None
    ((reply,),) = poll_replies(grid, ids)
    assert reply.metadata.src_node_id == 10
