"""What announces a message without content to Flower; it knows Flower's insides."""

from typing import Any


def announce(kind: Any, reply: Any, **fields: Any) -> Any:
    """Return the request of that kind that announces an error reply, which gets its id.

    Its only object has the id of the message; `reply.deflate()` is its content.
    """
    from flwr.common.serde import message_to_proto
    from flwr.supercore.inflatable.inflatable_object import get_object_tree

    reply.metadata.__dict__["_message_id"] = reply.object_id
    return kind(
        messages_list=[message_to_proto(reply)],
        message_object_trees=[get_object_tree(reply)],
        **fields,
    )
