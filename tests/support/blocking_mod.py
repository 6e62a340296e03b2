"""A client mod that holds a run in one round, so that a test can kill it there.

It is configured by the folder that the environment variable names: the mod appends the number of
each round it sees to the folder's file "rounds", and holds round `HELD_ROUND` for as long as there
is no file "released".
"""

import os
import time
from pathlib import Path

FOLDER_VARIABLE = "FEDAVG_APP_TEST_BLOCKING_MOD"
HELD_ROUND = 150
MOD = "tests.support.blocking_mod:hold_round"


def hold_round(message, context, call_next):
    folder = Path(os.environ[FOLDER_VARIABLE])
    server_round = message.content["config"]["server-round"]
    with (folder / "rounds").open("a") as rounds:
        rounds.write(f"{server_round}\n")
    while server_round == HELD_ROUND and not (folder / "released").exists():
        time.sleep(0.05)
    return call_next(message, context)
