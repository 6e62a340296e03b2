"""What this package uses of Flower that Flower does not document, and whether it is there.

What counts is that a part exists and takes the arguments that it is given, not Flower's version.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from inspect import Parameter, signature

# By "module:name", the arguments that it must take.
Parts = Mapping[str, Sequence[str]]

# The versions of which the tests pass.
TESTED = "flwr>=1.41,<1.43"
_PULLS = ("initial_backoff", "backoff_cap", "max_tries_per_object")
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
    "flwr.supernode.cli.flower_supernode:flower_supernode": (),
    "flwr.supernode.start_client_internal:time.sleep": (),
    "flwr.supernode.start_client_internal:_pull_and_store_message": (
        "pull_object", "confirm_message_received",
    ),
    "flwr.supercore.run:RunNotRunningException": (),
    "flwr.supercore.superexec.run_superexec:get_executor": (),
    "flwr.supercore.superexec.run_superexec:run_superexec": (
        "insecure", "superexec_auth_secret", "parent_pid",
    ),
    "flwr.supercore.utils:disable_process_dumping": ("strict",),
    "flwr.supernode.runtime.run_clientapp:run_clientapp": ("insecure", "parent_pid"),
    "flwr.supernode.runtime.run_clientapp:pull_task_input": (),
    "flwr.supernode.runtime.run_clientapp:push_message": (),
    "flwr.supernode.runtime.run_clientapp:install_from_fab": ("install_dir", "skip_prompt"),
    "flwr.common.constant:APP_DIR": (),
    "flwr.common.constant:FAB_HASH_TRUNCATION": (),
    "flwr.supercore.utils:get_flwr_home": (),
    "flwr.supernode.runtime.run_clientapp:push_task_output": (),
    "flwr.supernode.runtime.run_clientapp:pull_and_inflate_object_from_tree": _PULLS,
    "flwr.supercore.runtime:RuntimeHttpClient.PullMessages": (),
    "flwr.supercore.runtime:RuntimeHttpClient.from_server_address": (),
    "flwr.supercore.interceptors:RuntimeTokenHttpInterceptor": (),
    "flwr.supercore.interceptors:RuntimeVersionHttpInterceptor": ("component_name",),
    "flwr.supernode.runtime.run_clientapp:register_signal_handlers": ("exit_handlers",),
    "flwr.supercore.exit:add_exit_handler": ("run_before_force_exit",),
}  # fmt: skip


def why_unfit(parts: Parts) -> str | None:
    """Return what the installed Flower lacks, and what helps, in one line; None if nothing."""
    for place, arguments in parts.items():
        if lacks := _lacks(place, arguments):
            name = f"flwr {version('flwr')}"
            return f"{name} has no {lacks}, which this needs; run: pip install '{TESTED}'"
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
    except (ImportError, AttributeError):
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
