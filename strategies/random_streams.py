"""Random streams of compression, one per seed, purpose, client and round."""

import zlib

import numpy as np

UPLINK, DOWNLINK = "uplink", "downlink"


def random_stream(
    seed: object, purpose: str, client: object, server_round: int
) -> np.random.Generator:
    """Return the generator for a purpose in a round, of a client or of all clients.

    Args:
        seed: The run's. The CRC-32 of its text stands for a value that is no integer from 0.
        purpose: `UPLINK` for a client's update, `DOWNLINK` for the server's.
        client: The client's partition, likewise; 0 for the server.
        server_round: From 1: `numpy.random.SeedSequence` ignores trailing zeros.
    """
    own, of_client = (
        value if isinstance(value, int) and value >= 0 else zlib.crc32(str(value).encode())
        for value in (seed, client)
    )
    return np.random.default_rng([own, zlib.crc32(purpose.encode()), of_client, server_round])
