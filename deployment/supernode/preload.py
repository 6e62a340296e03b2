"""What the fork server imports before it is forked: the libraries of a client, none of its code.

`multiprocessing` imports this module in the fork server. The app itself is not preloaded: a client
runs the code that the server sent with the run, and an installed module of the same name, once
imported, would be taken in its place. Importing the app takes some 0.1 s of the seconds that a
cold start takes.
"""

import gc
import importlib

from deployment.supernode.process_tree import end_with_parent

# What a client imports for a training message; a test compares. What only one task or data set
# needs is not here: it would take memory on every device.
LIBRARIES = (
    "flwr.supernode.runtime.run_clientapp",
    "flwr.clientapp",
    "httpcore",
    "torch",
    "torch.nested._internal.nested_tensor",
    "numpy",
    "numpy.random",
    "pydantic",
    "platformdirs",
    "safetensors",
    "statistics",
    "tomllib",
    "encodings.cp437",
)


def preload() -> None:
    """Import all of `LIBRARIES`, as objects that the garbage collector leaves alone.

    It would write to each in every client, which then has a copy of its own of their memory.
    """
    gc.disable()
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


# `python -m deployment.supernode.preload` shows what cannot be imported, which `multiprocessing`
# passes over.
if __name__ != "__main__":
    end_with_parent()
preload()
