"""What the fork server imports before it is forked: the libraries of a client, none of its code.

`multiprocessing` imports this module in the fork server. The app itself is not preloaded: a client
runs the code that the server sent with the run, and an installed module of the same name, once
imported, would be taken in its place. Importing the app takes some 0.1 s of the seconds that a
cold start takes.
"""

import gc
import importlib
import logging
import time

from deployment.supernode import end_with_parent

# What a client imports for a training message; a test compares. What only one task or data set
# needs is not here: it would take memory on every device.
LIBRARIES = (
    "flwr.supernode.runtime.run_clientapp", "flwr.clientapp", "httpcore", "torch",
    "torch.nested._internal.nested_tensor", "numpy", "numpy.random", "pydantic", "platformdirs",
    "safetensors", "statistics", "tomllib", "encodings.cp437",
)  # fmt: skip


def preload() -> None:
    """Import all of `LIBRARIES`, as objects that the garbage collector leaves alone.

    The collector would write to each of them in every client, which would then have its own copy of
    their memory. `multiprocessing` would ignore an import that fails.
    """
    log, started = logging.getLogger("flwr"), time.monotonic()
    gc.disable()
    try:
        for name in LIBRARIES:
            importlib.import_module(name)
        log.info("Clients start warm, after %.1f s of imports", time.monotonic() - started)
    except ImportError:
        log.exception("Clients start cold")
    gc.freeze()
    gc.enable()


end_with_parent()
preload()
