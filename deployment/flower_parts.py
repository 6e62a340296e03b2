"""What this package uses of Flower that Flower does not document, and whether it is there.

What counts is that a part exists and takes the arguments that it is given, not Flower's version.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from inspect import Parameter, signature

# By "module:name", the arguments that it must take. What a module of this package imports is looked
# for with that module.
Parts = Mapping[str, Sequence[str]]

# The versions of which the tests pass.
TESTED = "flwr>=1.41,<1.43"
SUPERLINK: Parts = {
    "flwr.superlink.cli.flower_superlink:flower_superlink": (),
    "flwr.superlink.extensions:get_middleware": (),
    "flwr.superlink.main:_get_middleware": (),
    "flwr.supercore.sql_mixin:SQLITE_PRAGMAS": (),
    "flwr.supercore.inflatable.inflatable_object:get_object_tree": (),
    "flwr.supercore.primitives.asymmetric:verify_signature": (),
    "flwr.common.serde:message_from_proto": (),
    "flwr.common.serde:message_to_proto": (),
    "uvicorn.config:HTTP_PROTOCOLS": (),
    "uvicorn.config:LOOP_FACTORIES": (),
}
SUPERNODE: Parts = {
    "deployment.supernode.message_loop:run_supernode": (),
    "flwr.supernode.start_client_internal:_pull_and_store_message": (
        "receive", "pull_object", "confirm_message_received",
    ),
    "flwr.supernode.start_client_internal:_push_messages": ("state", "object_store"),
    "flwr.supernode.servicer.runtime.runtime_handlers:acquire_task": ("request", "state"),
    "flwr.supernode.servicer.runtime.runtime_handlers:push_messages": ("request", "state", "task"),
    "flwr.supernode.servicer.runtime.runtime_handlers:push_object": ("request", "state", "task"),
    "flwr.supernode.nodestate:NodeState.get_task_by_token": (),
    "flwr.supernode.nodestate:NodeState.get_node_id": (),
    "flwr.supercore.object_store:ObjectStore.get": (),
    "flwr.supernode.runtime.run_clientapp:run_clientapp": ("insecure", "parent_pid"),
    "flwr.supernode.runtime.run_clientapp:install_from_fab": ("install_dir", "skip_prompt"),
    "flwr.supernode.runtime.run_clientapp:pull_task_input": ("client",),
    "flwr.supernode.runtime.run_clientapp:push_message": ("client", "message", "context"),
    "flwr.supernode.nodestate:NodeState.get_run": ("run_id",),
}  # fmt: skip


def why_unfit(parts: Parts) -> str | None:
    """Return what the installed Flower lacks, and what helps, in one line; None if nothing."""
    for place, arguments in parts.items():
        if lacks := _lacks(place, arguments):
            return f"flwr {version('flwr')} lacks a part ({lacks}); run: pip install '{TESTED}'"
    return None


def main() -> None:
    """Print a line for each launcher, with what it lacks behind a colon."""
    launchers = {"warm clients on devices": SUPERNODE, "the SuperLink's gate": SUPERLINK}
    for what, parts in launchers.items():
        print(": ".join(filter(None, (what, why_unfit(parts)))))  # noqa: T201


def _lacks(place: str, arguments: Sequence[str]) -> str:
    module, _, names = place.partition(":")
    try:
        part = import_module(module)
        for name in names.split("."):
            part = getattr(part, name)
    except ImportError as error:
        return str(error)
    except AttributeError:
        return f"{module}.{names}"
    if not arguments:
        return ""
    known = signature(part).parameters  # type: ignore[arg-type]
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values()):
        return ""
    missing = [name for name in arguments if name not in known]
    return f"{module}.{names}({missing[0]}=...)" if missing else ""


if __name__ == "__main__":
    main()
