"""The client's end of a secure sum: what it keeps between the stages of a round, and its answers.

A client refuses what would tell the server more than the sum: a stage out of order or a second
time, a set of fewer than t clients or of clients that it does not know, keys seen twice.
"""

import hashlib
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import numpy as np
from cryptography.exceptions import InvalidTag
from flwr.app import ConfigRecord

from ..compressed_client import RESIDUAL, CompressedClient
from ..compression.shared_entries import SharedEntries
from ..compression.sync_protocol import Payload
from ..rounds.client_memory import ClientMemory
from ..rounds.client_messages import Train
from ..rounds.messages import CODEC, SECURE, Received, Update
from .identity import Identity, is_recent, of_node, verify
from .masked_numbers import extras_of, pack_words, ring_bits
from .messages import (
    GRID,
    KEYS,
    SEALED,
    SIGNED_KEYS,
    Request,
    Stage,
    read_places,
    read_rows,
    read_survivors,
    write_rows,
)
from .primitives import (
    KEY,
    LETTERS,
    SHARE,
    SIGNATURE,
    agree,
    new_secret,
    pair_masks,
    public_key,
    seal,
    self_mask,
    split,
    unseal,
)


@dataclass(frozen=True)
class Session:
    """What a client keeps between the stages of a round.

    Attributes:
        stage: The stage that it answered last.
        head: The head of the round's messages, which stays the same.
        number: The round's.
        training: Its training's.
        mask_secret, letter_secret, self_secret: Its secrets: two for the keys of the masks and of
            encryption, which it shares with the others, and that of its own mask.
        row: Its row of keys.
        keys: All rows of keys.
        sealed: The shares that the others sent it.
    """

    stage: int
    head: bytes
    number: int
    training: int
    mask_secret: bytes = b""
    letter_secret: bytes = b""
    self_secret: bytes = b""
    row: bytes = b""
    keys: bytes = b""
    sealed: bytes = b""

    @property
    def record(self) -> ConfigRecord:
        """The record of the client's state; Flower cannot count the bytes of an empty entry."""
        return ConfigRecord({name: value for name, value in asdict(self).items() if value != b""})


class SecureClient:
    """Answers the messages of a `SecureSum`.

    Args:
        clients: Answers the one with the model.
    """

    def __init__(self, clients: CompressedClient) -> None:
        self._clients = clients

    def answer(
        self, received: Received, memory: ClientMemory, train: Train
    ) -> tuple[Update, ClientMemory | None]:
        """Return the answer to a stage of a round, and the memory that the client keeps.

        Raises:
            ValueError: As for `CompressedClient.answer`; or the client refuses the message.
        """
        request, identity = Request.decode(received.take(SECURE)), of_node(received.node_config)
        last = Session(**memory.stages) if memory.stages else None  # type: ignore[arg-type]
        session = _next_session(request, last, received.number)
        if request.signed != (identity is not None):
            raise ValueError(
                "the server wants signed sums: give signing-key and peers in the node config"
                if request.signed
                else "the server wants sums that are not signed, and this node has a signing-key"
            )
        if request.stage == Stage.MASK:
            return self._mask(request, session, received, memory, train)
        if request.stage == Stage.ADVERTISE:
            session = replace(session, row=_row(request, session, identity))
            data = session.row
        elif request.stage == Stage.SHARE:
            session = replace(session, keys=request.body)
            data = _share(request, session, identity)
        elif request.stage == Stage.SIGN:
            assert identity is not None
            _check_set(request, read_places(request.body), read_rows(session.sealed, SEALED))
            data = identity.key.sign(signed_set(session.keys, request.body))
        else:
            data = _reveal(request, session)
            # Without its secrets and shares, it can reveal nothing more.
            session = Session(session.stage, session.head, session.number, session.training)
        return Update(payload=data, alone=True), replace(memory, stages=session.record)

    def _mask(
        self,
        request: Request,
        session: Session,
        received: Received,
        memory: ClientMemory,
        train: Train,
    ) -> tuple[Update, ClientMemory | None]:
        """Train, and return the update's numbers under the client's masks."""
        codec = self._clients.codec(str(received.entries.get(CODEC, memory.codec)))
        seed, scale = GRID.unpack_from(request.body)
        sealed = read_rows(request.body[GRID.size :], SEALED)
        keys = _keys(request, session.keys)
        _check_set(request, sealed, keys)
        uplink = None if codec is None else codec.uplink
        if isinstance(uplink, SharedEntries):
            uplink = replace(uplink, seed=seed, scale=scale)
        elif uplink is not None:
            raise ValueError(f"secure sums need the uplink 'shared', not {uplink}")
        update, kept = self._clients.answer(received, memory, train, uplink)
        if kept is None or update.payload is None:
            return update, kept
        assert isinstance(uplink, SharedEntries)
        payload, change = Payload.decode(update.payload), kept.vectors[RESIDUAL]
        numbers = uplink.numbers(payload.update, len(change))
        values = change[uplink.positions(seed, len(change))]
        words = np.concatenate([numbers, extras_of(values, scale)]).astype(np.uint32)
        others = {place: keys[place][:KEY] for place in sealed if place != request.place}
        words += self_mask(session.self_secret, len(words))
        words += pair_masks(session.mask_secret, request.place, others, len(words))
        data = pack_words(words, ring_bits(uplink.bits, request.cohort))
        session = replace(
            session, mask_secret=b"", self_secret=b"", sealed=request.body[GRID.size :]
        )
        return (
            Update(payload=replace(payload, update=data).encode(), alone=True),
            replace(kept, stages=session.record),
        )


def _next_session(request: Request, last: Session | None, number: int) -> Session:
    """Return the session, with this message's stage; ValueError if it is not due."""
    stage, head = request.stage, replace(request, stage=Stage.ADVERTISE, body=b"").encode()
    if request.number != number:
        raise ValueError(f"a stage of round {request.number} in a message of round {number}")
    if stage == Stage.ADVERTISE:
        if request.threshold > request.cohort:
            raise ValueError(f"a sum over {request.cohort} client says what that client sent")
        if last and last.training == request.training and number <= last.number:
            raise ValueError(f"a second sum of round {number}")
        secrets = new_secret(), new_secret(), new_secret()
        return Session(stage, head, number, request.training, *secrets)
    before = stage - 1
    if stage == Stage.UNMASK and not request.signed:
        before = Stage.MASK
    if last is None or last.head != head or last.stage != before:
        raise ValueError(f"stage {stage.name} of round {number} is not due")
    return replace(last, stage=int(stage))


def _row(request: Request, session: Session, identity: Identity | None) -> bytes:
    keys = public_key(session.mask_secret) + public_key(session.letter_secret)
    if identity is None:
        return keys
    row = keys + int(time.time()).to_bytes(8, "little")
    return row + identity.public + identity.key.sign(_row_text(request, request.place, row))


def _row_text(request: Request, place: int, row: bytes) -> bytes:
    """Return what a client signs of its row."""
    head = replace(request, stage=Stage.ADVERTISE, place=place, body=b"").encode()
    return b"fedavg secure sum: keys" + head + row


def signed_set(keys: bytes, places: bytes) -> bytes:
    """Return what clients sign of the set of survivors; the keys are of this round alone."""
    return b"fedavg secure sum: set" + hashlib.sha256(keys).digest() + places


def signer(row: bytes) -> bytes:
    """Return the signing key in a client's row."""
    return row[KEYS + 8 : -SIGNATURE]


def _share(request: Request, session: Session, identity: Identity | None) -> bytes:
    """Return the client's two shared secrets as shares, encrypted for each of the others."""
    keys = _keys(request, session.keys)
    if keys.get(request.place) != session.row:
        raise ValueError("the server sends another key in place of this client's")
    _check_set(request, keys, range(request.cohort))
    seen = [key for row in keys.values() for key in (row[:KEY], row[KEY:KEYS])]
    if len(set(seen)) < len(seen):
        raise ValueError("the server sends a key twice")
    if identity is not None:
        _check_signatures(request, keys, identity)
    parts = (session.mask_secret, session.self_secret)
    mask_shares, self_shares = (split(part, request.threshold, keys) for part in parts)
    sealed = {}
    for place, row in keys.items():
        key = agree(session.letter_secret, row[KEY:KEYS], LETTERS)
        text = mask_shares[place] + self_shares[place]
        sealed[place] = seal(key, request.place, place, text)
    return write_rows(sealed)


def _check_signatures(request: Request, keys: dict[int, bytes], identity: Identity) -> None:
    """Check that each row is signed, not long ago, by another one of the device's peers."""
    signers = {signer(row) for row in keys.values()}
    if len(signers) < len(keys):
        raise ValueError("a device takes part twice")
    if signers - identity.peers - {identity.public}:
        raise ValueError("a device takes part that is not in this node's peers")
    for place, row in keys.items():
        text = _row_text(request, place, row[: KEYS + 8])
        if not verify(signer(row), row[-SIGNATURE:], text):
            raise ValueError("the server sends a key that its device has not signed")
        if not is_recent(int.from_bytes(row[KEYS : KEYS + 8], "little")):
            raise ValueError("a device's key was signed long ago, or the clocks differ by an hour")


def _reveal(request: Request, session: Session) -> bytes:
    """Return a share for each client that shared: of its own mask if it is in the sum.

    Of a client that is not, it is the share of the secret behind the masks that others added for
    it. A share that does not decrypt is left out.
    """
    listed, signatures = read_survivors(request.body)
    survivors, sealed = read_places(listed), read_rows(session.sealed, SEALED)
    keys = _keys(request, session.keys)
    _check_set(request, survivors, sealed)
    if request.signed:
        _check_set(request, signatures, survivors)
        text = signed_set(session.keys, listed)
        for place, signature in signatures.items():
            if not verify(signer(keys[place]), signature, text):
                raise ValueError("a signature of the set of survivors is wrong")
    shares = {}
    for place, data in sealed.items():
        key = agree(session.letter_secret, keys[place][KEY:KEYS], LETTERS)
        try:
            text = unseal(key, place, request.place, data)
        except InvalidTag:
            continue
        shares[place] = text[SHARE:] if place in survivors else text[:SHARE]
    return write_rows(shares)


def _keys(request: Request, data: bytes) -> dict[int, bytes]:
    return read_rows(data, SIGNED_KEYS if request.signed else KEYS)


def _check_set(request: Request, places: Iterable[int], known: Iterable[int]) -> None:
    """Check that the server names at least t clients, all of them known."""
    named = set(places)
    if len(named) < request.threshold:
        few = f"{len(named)} of {request.cohort} clients are left, {request.threshold} are needed"
        raise ValueError(f"{request.stage.name}: {few}")
    if not named <= set(known):
        raise ValueError(f"{request.stage.name}: the server names a client that was not there")
