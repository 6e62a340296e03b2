"""Start a SuperNode with warm clients: ``python -m deployment.supernode OPTION...``.

The options are those of flower-supernode. With ``--isolation``, which other options about how
clients are started need as well, flower-supernode itself is run. So it is where the installed
Flower does not fit, and a line then says so.

A SuperNode that cannot go on ends its process, for whoever starts it again. Flower's ends only the
loop or the thread that failed: after a failed TLS handshake, for example, its HTTP server would
keep the process forever, and after a heartbeat that was answered with HTTP 500 it would be offline.
"""

import argparse
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from typing import NoReturn

from deployment.flower_parts import SUPERNODE, why_unfit
from deployment.supernode.memory import return_memory


def main() -> None:
    """Run it; the exit status is flower-supernode's, or 1 where it cannot go on."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--isolation")
    parser.add_argument("--port")
    given, options = parser.parse_known_args()
    threading.Thread(target=return_memory, daemon=True).start()
    with exit_on_failure():
        if given.isolation is None:
            why = why_unfit(SUPERNODE)
            if why is None:
                run_warm(options, given.port or str(free_port()))
                return
            line = "each message starts a new Python process, as in Flower"
            sys.stderr.write(f"deployment.supernode: {line}: {why}\n")
        flower_command = ["flower-supernode", *sys.argv[1:]]
        if given.port is None and given.isolation != "process":  # whose port others are to know
            flower_command += ["--port", str(free_port())]
        run_flower(flower_command)


@contextmanager
def exit_on_failure() -> Iterator[None]:
    """End this process where what runs inside, or a thread of it, ends without an exit."""

    def of_thread(failed: threading.ExceptHookArgs) -> None:
        if not isinstance(failed.exc_value, SystemExit):
            end_process(failed.exc_value)

    threading.excepthook = of_thread
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        end_process(error)
    end_process()


def end_process(error: BaseException | None = None) -> NoReturn:
    """End this process with a line and status 1."""
    reason = " ".join(f"{type(error).__name__}: {error}".split()) if error else "its loop is over"
    line = f"the SuperNode cannot go on ({reason}), and exits with status 1"
    sys.stderr.write(f"deployment.supernode: {line}\n")
    os._exit(1)


def run_flower(words: list[str]) -> None:
    """Run flower-supernode in this process; as a program where this Flower has it elsewhere."""
    try:
        from flwr.supernode.cli.flower_supernode import flower_supernode
    except ImportError:
        os.execvp(words[0], words)  # noqa: S606
    sys.argv = words
    flower_supernode()


def run_warm(options: Sequence[str], port: str) -> None:
    """Run the SuperNode in this process; the process that clients are forked from ends with it."""
    from deployment.supernode.message_loop import run_supernode

    forkserver.ensure_running()  # it imports what clients need meanwhile
    run_supernode([*options, "--port", port, "--isolation", "process"], f"127.0.0.1:{port}")


def free_port() -> int:
    """Return a port of the loopback device on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
