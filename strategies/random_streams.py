"""Random streams of compression, one per seed, purpose, client and round."""

import zlib

import numpy as np

UPLINK, DOWNLINK = "uplink", "downlink"


def random_stream(seed: int, purpose: str, client: int, server_round: int) -> np.random.Generator:
    """Return the generator for a purpose in a round, of a client or of all clients.

    Args:
        seed: The run's.
        purpose: `UPLINK` for a client's update, `DOWNLINK` for the server's.
        client: The client's partition; 0 for the server.
        server_round: From 1: `numpy.random.SeedSequence` ignores trailing zeros.
    """
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), client, server_round])
