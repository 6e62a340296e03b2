"""Whose key signed a request: what Flower's SuperLink checks only once it has read all of it."""

from base64 import b64decode
from collections.abc import Mapping

from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

PUBLIC_KEY, SIGNATURE, TIMESTAMP = (
    name.lower().encode()
    for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)
)


def signer(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the public key whose owner signed the request's time; empty where nobody did.

    A device keeps its private key, but its public key goes from hand to hand, so that the header
    alone proves nothing. The key is decoded, since base64 has several spellings of the same bytes.
    Whether the time is now is left to the SuperLink, which refuses old requests.

    Args:
        headers: The request's, by name in lower case.
    """
    try:
        key = b64decode(headers[PUBLIC_KEY], validate=True)
        signature = b64decode(headers[SIGNATURE], validate=True)
        is_signed = verify_signature(bytes_to_public_key(key), headers[TIMESTAMP], signature)
    except Exception:  # whatever the decoders raise for a stranger's bytes
        return b""
    return key if is_signed else b""
