"""The cryptography of secure sums, by `cryptography` and `pycryptodome`.

Secrets come from the operating system, in a simulation too: the sum does not depend on them, so
runs repeat all the same.
"""

import os
from collections.abc import Iterable, Mapping

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

# Bytes of a secret that is shared, of a share, of a key, of AES-GCM's tag, of a signature.
SECRET, SHARE, KEY, TAG, SIGNATURE = 16, 16, 32, 16, 64
# What the keys of two clients are used for.
MASKS, LETTERS = b"masks", b"letters"
# What is summed: numbers modulo 2^32.
Words = NDArray[np.uint32]


def new_secret() -> bytes:
    """Return 16 random bytes."""
    return os.urandom(SECRET)


def public_key(secret: bytes) -> bytes:
    """Return the public key of a secret, 32 bytes."""
    return _private_key(secret).public_key().public_bytes_raw()


def agree(secret: bytes, public: bytes, purpose: bytes) -> bytes:
    """Return the 32 bytes that both owners of two keys can compute; ValueError for a bad key."""
    shared = _private_key(secret).exchange(X25519PublicKey.from_public_bytes(public))
    return _derive(shared, purpose)


def self_mask(secret: bytes, count: int) -> Words:
    """Return the ``count`` words that a client adds for itself."""
    return _stream(_derive(secret, b"self"), count)


def pair_masks(secret: bytes, place: int, keys: Mapping[int, bytes], count: int) -> Words:
    """Return the sum of the ``count`` words that a client shares with each of the others.

    Of two clients the one at the lower place adds them, the other subtracts them: in a sum over
    both they cancel.

    Args:
        secret: The client's.
        place: The client's.
        keys: The others' public keys by place.
        count: How many words.
    """
    total = np.zeros(count, np.uint32)
    for other, key in keys.items():
        words = _stream(agree(secret, key, MASKS), count)
        total = total + words if place < other else total - words
    return total


def seal(key: bytes, sender: int, receiver: int, text: bytes) -> bytes:
    """Return a text encrypted by AES-GCM.

    A key is of one round and two clients, and each sends the other one text: their places are the
    nonce.
    """
    return AESGCM(key).encrypt(_nonce(sender, receiver), text, None)


def unseal(key: bytes, sender: int, receiver: int, data: bytes) -> bytes:
    """Return the text; `cryptography.exceptions.InvalidTag` if the data were changed."""
    return AESGCM(key).decrypt(_nonce(sender, receiver), data, None)


def split(secret: bytes, threshold: int, places: Iterable[int]) -> dict[int, bytes]:
    """Return Shamir's shares of a secret for clients at these places.

    Any ``threshold`` of them give the secret, fewer say nothing of it. A share belongs to its
    place.
    """
    wanted = set(places)
    shares = Shamir.split(threshold, max(wanted) + 1, secret, ssss=False)
    return {number - 1: bytes(share) for number, share in shares if number - 1 in wanted}


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of ``threshold`` shares, by place."""
    return bytes(
        Shamir.combine([(place + 1, share) for place, share in shares.items()], ssss=False)
    )


def _nonce(sender: int, receiver: int) -> bytes:
    return sender.to_bytes(6, "little") + receiver.to_bytes(6, "little")


def _private_key(secret: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(_derive(secret, b"x25519"))


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY, salt=None, info=purpose).derive(secret)


def _stream(key: bytes, count: int) -> Words:
    """Return ``count`` words of the ChaCha20 stream of a key that is used for nothing else."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(4 * count)), "<u4").astype(np.uint32, copy=False)
