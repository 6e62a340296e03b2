"""A device's signing key and those of its peers: what a server that cheats cannot replace.

Both are files of OpenSSH's, which the node's config names: "signing-key" is a private Ed25519 key,
"peers" has a public key a line.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from ..rounds.messages import SIGNING_KEY

# The entry of a node's config beside SIGNING_KEY.
PEERS = "peers"
# How far the clocks of two devices may be apart: an older signature is one that is sent again.
MAX_SECONDS = 3600


@dataclass(frozen=True)
class Identity:
    """The keys of a device.

    Attributes:
        key: Its signing key.
        peers: The public keys, 32 bytes each, of the devices that it sums with.
    """

    key: Ed25519PrivateKey
    peers: frozenset[bytes]

    @property
    def public(self) -> bytes:
        """The device's public key, 32 bytes."""
        return self.key.public_key().public_bytes_raw()


def of_node(node_config: Mapping[str, Any]) -> Identity | None:
    """Return the identity that a node's config names; None if it names none.

    Raises:
        ValueError: Only one of the two files is named, or one cannot be read.
    """
    paths = [str(node_config.get(name, "")) for name in (SIGNING_KEY, PEERS)]
    if not any(paths):
        return None
    if not all(paths):
        raise ValueError(f"node config: give both {SIGNING_KEY} and {PEERS}, or neither")
    return _read(*paths)


def verify(public: bytes, signature: bytes, text: bytes) -> bool:
    """Return whether a signature is of this key and text."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except InvalidSignature:
        return False
    return True


def is_recent(seconds: int) -> bool:
    """Return whether a time of another clock, in seconds since 1970, is about now."""
    return abs(time.time() - seconds) <= MAX_SECONDS


def _read(signing_key: str, peers: str) -> Identity:
    try:
        key = load_ssh_private_key(Path(signing_key).read_bytes(), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("it is no Ed25519 key")
    except (OSError, ValueError, TypeError) as error:
        fix = "give the file that `ssh-keygen -t ed25519 -N ''` writes"
        raise ValueError(f"node config: {SIGNING_KEY} = {signing_key!r}: {error}; {fix}") from error
    try:
        known = frozenset(map(_public, filter(None, Path(peers).read_bytes().splitlines())))
    except (OSError, ValueError) as error:
        fix = "give a file with an OpenSSH public Ed25519 key a line"
        raise ValueError(f"node config: {PEERS} = {peers!r}: {error}; {fix}") from error
    return Identity(key, known)


def _public(line: bytes) -> bytes:
    key = load_ssh_public_key(line)
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("a key is no Ed25519 key")
    return key.public_bytes_raw()
