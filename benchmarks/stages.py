"""A client mod that records when each stage of a message began, for engine.py and latency.py."""

import json
import os
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

# The environment variable that names the file.
FILE = "FEDAVG_APP_BENCHMARK_STAGES"


def record_stages(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Append the message's stages, in seconds since 1970, as a line of JSON to the file $FILE."""
    started = time.time() - process_age()
    import fedavg_app.client.task_client  # noqa: F401 - so that torch counts as import, not as work

    imported = time.time()
    reply = call_next(message, context)
    stages = {
        "process": os.getpid(),
        "node": context.node_config["partition-id"],
        "round": message.content.config_records["config"]["server-round"],
        "sent": message.metadata.created_at,
        "started": started,
        "imported": imported,
        "done": time.time(),
    }
    with Path(os.environ[FILE]).open("a") as file:
        file.write(json.dumps(stages) + "\n")
    return reply


def process_age() -> float:
    """Return for how many seconds this process has been running (Linux only)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since the machine was started
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began
