"""Adds middleware and a longer database timeout to Flower's SuperLink; it has no option for them.

Flower asks `flwr.superlink.extensions` for the middleware of its paid extension and puts it before
its own. The function that answers is replaced, in this process only.
Every step is checked, because a SuperLink without the middleware would work but be open to all.

Every request writes to the SuperLink's SQLite database, and waits for others that do: up to 5 s by
a constant of Flower, after which it fails. With 24 devices in a round some do, and their messages,
or the run, are lost. Each of up to 15 connections to the database may keep 64 MB of it in memory,
and the file of the write-ahead log stays as large as it once was.
"""

import os
from typing import Any

from starlette.middleware import Middleware

from deployment.flower_parts import SUPERLINK, why_unfit
from deployment.superlink.connections import raise_file_limit

PRAGMAS = {
    "busy_timeout": "60000",  # milliseconds that a request waits for the database
    "cache_size": "-8000",  # kB of a connection; the objects of messages are read only once
    "journal_size_limit": "67108864",  # bytes of the write-ahead log that are kept for new ones
}


def run_superlink(middleware: list[Middleware]) -> None:
    """Run `flower-superlink` with the words of ``sys.argv`` and middleware before all other.

    Returns when the SuperLink has ended.

    Args:
        middleware: The outermost first, which sees every request.

    Raises:
        ValueError: This Flower gives no place for it, so that it would not see every request.
    """
    if why := why_unfit(SUPERLINK):
        raise ValueError(f"{why}, or put a proxy before flower-superlink")
    # Uvicorn would take a client's address from a proxy's header.
    os.environ["FORWARDED_ALLOW_IPS"] = ""
    _insert(middleware)
    _set_pragmas()
    _bound_connections()
    from flwr.superlink.cli.flower_superlink import flower_superlink

    flower_superlink()


def _insert(middleware: list[Middleware]) -> None:
    from flwr.superlink import extensions, main

    of_extension = extensions.get_middleware

    def get_middleware() -> tuple[Middleware, ...]:
        return (*middleware, *of_extension())

    extensions.get_middleware = get_middleware
    if main._get_middleware()[: len(middleware)] != middleware:
        raise ValueError("this flwr does not take the middleware of extensions")


def _set_pragmas() -> None:
    from flwr.supercore import sql_mixin

    pragmas = vars(sql_mixin).get("SQLITE_PRAGMAS", ())
    if "busy_timeout" not in dict(pragmas):
        raise ValueError("this flwr has no SQLITE_PRAGMAS with a busy_timeout")
    vars(sql_mixin)["SQLITE_PRAGMAS"] = tuple({**dict(pragmas), **PRAGMAS}.items())


def _bound_connections() -> None:
    """Let uvicorn, which Flower runs with its defaults, take the classes of `connections`."""
    from uvicorn import config

    config.HTTP_PROTOCOLS["auto"] = "deployment.superlink.connections:BoundedHTTPProtocol"
    config.LOOP_FACTORIES["auto"] = "deployment.superlink.connections:loop_factory"
    raise_file_limit()


def error_reply(message: Any, reason: str) -> tuple[Any, bytes]:
    """Return the request that announces an error as the reply to a message.

    The second value is the content of the only object, whose id is the reply's.

    Args:
        message: The message as it was given to its node, a protobuf.
        reason: The reason, for the run's history.
    """
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode
    from flwr.common.serde import message_from_proto, message_to_proto
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.inflatable.inflatable_object import get_object_tree

    error = Error(ErrorCode.MESSAGE_UNAVAILABLE, reason)
    reply = Message(error, reply_to=message_from_proto(message))
    reply.metadata.__dict__["_message_id"] = reply.object_id
    announcement = PushMessagesRequest(
        node=Node(node_id=reply.metadata.src_node_id),
        messages_list=[message_to_proto(reply)],
        message_object_trees=[get_object_tree(reply)],
    )
    return announcement, reply.deflate()


def ids_of_replies(request: Any) -> Any:
    """Return the ids, to be changed in place, of the messages whose replies a run asks for.

    Args:
        request: A PullAppMessagesRequest, of Flower before 1.43 or since.
    """
    since = getattr(request, "reply_to_message_ids", None)
    return request.message_ids if since is None else since.vals
