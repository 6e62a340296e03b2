"""The keys, letters and masks of a secure sum, next to pycryptodome's, as docs/protocol.md says."""

import numpy as np
import pytest
from Crypto.Cipher import AES, ChaCha20
from Crypto.Hash import SHA256
from Crypto.Protocol.DH import import_x25519_private_key, import_x25519_public_key, key_agreement
from Crypto.Protocol.KDF import HKDF
from cryptography.exceptions import InvalidTag

from strategies.secure import primitives

ONE, OTHER = b"a secret of one.", b"another's secret"


def derive(secret, purpose):
    return HKDF(secret, 32, None, SHA256, 1, purpose)


def private(secret):
    return import_x25519_private_key(derive(secret, b"x25519"))


def public(secret):
    return private(secret).public_key().export_key(format="raw")


def words(key, count):
    stream = ChaCha20.new(key=key, nonce=bytes(8)).encrypt(bytes(4 * count))
    return np.frombuffer(stream, "<u4")


def agreed(secret, key, purpose):
    other = import_x25519_public_key(key)
    return key_agreement(
        static_priv=private(secret), static_pub=other, kdf=lambda shared: derive(shared, purpose)
    )


def test_keys_and_masks_are_those_of_the_protocol():
    assert primitives.public_key(ONE) == public(ONE)
    key = agreed(ONE, public(OTHER), b"masks")
    assert primitives.agree(ONE, public(OTHER), b"masks") == key
    np.testing.assert_array_equal(primitives.self_mask(ONE, 9), words(derive(ONE, b"self"), 9))
    keys = {0: public(OTHER), 5: public(OTHER)}
    masks = primitives.pair_masks(ONE, 3, {5: keys[5]}, 9)
    np.testing.assert_array_equal(masks, words(key, 9))
    both = primitives.pair_masks(ONE, 3, keys, 9)
    np.testing.assert_array_equal(both, np.zeros(9), "added for place 5, subtracted for place 0")


def test_letters_are_aes_gcm_and_belong_to_a_sender_and_a_receiver():
    key = bytes(range(32))
    data = primitives.seal(key, 3, 300, b"two shares")
    cipher = AES.new(key, AES.MODE_GCM, nonce=bytes([3, 0, 0, 0, 0, 0, 44, 1, 0, 0, 0, 0]))
    assert b"".join(cipher.encrypt_and_digest(b"two shares")) == data
    assert primitives.unseal(key, 3, 300, data) == b"two shares"
    for wrong in ((key, 300, 3, data), (key, 3, 300, data[::-1]), (key[::-1], 3, 300, data)):
        with pytest.raises(InvalidTag):
            primitives.unseal(*wrong)


def test_any_t_shares_give_the_secret():
    shares = primitives.split(ONE, 3, [0, 2, 5, 7])
    for kept in ((0, 2, 5), (7, 5, 2), (0, 2, 5, 7)):
        assert primitives.combine({place: shares[place] for place in kept}) == ONE
    assert primitives.combine({place: shares[place] for place in (0, 2)}) != ONE
