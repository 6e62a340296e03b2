"""A client mod that records how long each client's handler takes: see benchmarks/engine.py."""

import os
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

# The environment variable that names the folder of the files.
FOLDER = "FEDAVG_APP_BENCHMARK_TIMES"


def record_duration(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Append (round, seconds) to a file of this process."""
    server_round = message.content.config_records["config"]["server-round"]
    started = time.perf_counter()
    reply = call_next(message, context)
    seconds = time.perf_counter() - started
    with (Path(os.environ[FOLDER]) / str(os.getpid())).open("a") as file:
        file.write(f"{server_round} {seconds}\n")
    return reply
