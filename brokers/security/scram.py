"""Implements both sides of SCRAM (RFC 5802, RFC 7677) as values; the caller passes nonces and salts.

As in Kafka there is no channel binding, and names and passwords are UTF-8 without SASLprep.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from msgspec import Struct

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Hash function of each supported mechanism."""
ITERATIONS_MIN: Final = 4_096
"""Least number of iterations, as for Kafka's clients: with fewer a fake broker could find the password too cheaply."""
ITERATIONS_MAX: Final = 65_536
"""Most iterations: these block the event loop for a tenth of a second. Kafka's tools write up to 16,384."""
MESSAGE_BYTES_MAX: Final = 4_096
_NO_BINDING: Final = "n,,"
_KEYS_MAX: Final = 64


class ScramRefused(ValueError):
    """Raised where the peer violates the protocol, or does not know the password; the text says which."""


class Credential(Struct, frozen=True):
    """The values that a server stores instead of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


@lru_cache(_KEYS_MAX)
def salted_password(algorithm: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Returns the salted password, cached: all brokers have the same salt, and a failover connects to each of them."""
    return hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)


def credential(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS_MIN) -> Credential:
    """Returns the credential of a password."""
    algorithm = HASHES[mechanism]
    salted = salted_password(algorithm, password, salt, iterations)
    client_key = _hmac(algorithm, salted, b"Client Key")
    stored_key = hashlib.new(algorithm, client_key).digest()
    return Credential(salt, iterations, stored_key, _hmac(algorithm, salted, b"Server Key"))


class ScramClient:
    """A client: call ``first``, then ``final`` with the server's first message, then ``verify`` with its final one."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._algorithm = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={_escaped(user)},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Returns the client's first message."""
        return (_NO_BINDING + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Returns the client's final message; raises :class:`ScramRefused`."""
        text = _text(server_first)
        fields = _fields(text, "rsi")
        nonce, salt, iterations = fields[0], _bytes(fields[1]), _count(fields[2])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramRefused("the server's nonce does not continue the client's")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramRefused(f"the server requests {iterations} iterations, outside of 4096 to {ITERATIONS_MAX}")
        salted = salted_password(self._algorithm, self._password, salt, iterations)
        without_proof = f"c={_base64(_NO_BINDING.encode())},r={nonce}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = _hmac(self._algorithm, salted, b"Client Key")
        signature = _hmac(self._algorithm, hashlib.new(self._algorithm, client_key).digest(), signed)
        self._server_signature = _hmac(self._algorithm, _hmac(self._algorithm, salted, b"Server Key"), signed)
        return f"{without_proof},p={_base64(_xor(client_key, signature))}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raises :class:`ScramRefused` unless the server knows the password, too."""
        text = _text(server_final)
        if text.startswith("e="):
            raise ScramRefused(f"the server refuses: {text[2:]}")
        if not hmac.compare_digest(_bytes(_fields(text, "v")[0]), self._server_signature):
            raise ScramRefused("the server does not know the password")


class ScramServer:
    """A server: call ``first`` with the client's first message, then ``final`` with its final one.

    ``credential_of`` returns a credential for every name, also for an unknown one: clients without a password must not
    find out the users.
    """

    def __init__(self, mechanism: str, credential_of: Callable[[str], Credential], nonce: str) -> None:
        self._algorithm = HASHES[mechanism]
        self._credential_of = credential_of
        self._nonce = nonce
        self._credential = Credential(b"", 0, b"", b"")
        self._signed = ""
        self._binding = ""
        self.user = ""
        """The user that the client claims; authenticated once ``final`` has returned."""

    def first(self, client_first: bytes) -> bytes:
        """Returns the server's first message; raises :class:`ScramRefused`."""
        text = _text(client_first)
        parts = text.split(",", 2)
        if len(parts) < 3 or parts[0] not in ("n", "y"):
            raise ScramRefused("channel binding is not offered")
        name, nonce = _fields(parts[2], "nr")
        self.user = _unescaped(name)
        if parts[1] and _unescaped(parts[1].removeprefix("a=")) != self.user:
            raise ScramRefused("a user may not act for another one")
        self._binding = f"{parts[0]},{parts[1]},"
        self._credential = self._credential_of(self.user)
        self._nonce = nonce + self._nonce
        message = f"r={self._nonce},s={_base64(self._credential.salt)},i={self._credential.iterations}"
        self._signed = f"{parts[2]},{message}"
        return message.encode()

    def final(self, client_final: bytes) -> bytes:
        """Returns the server's final message; raises :class:`ScramRefused` unless the client knows the password."""
        text = _text(client_final)
        without_proof, _, proof = text.rpartition(",p=")
        binding, nonce = _fields(without_proof, "cr")
        if nonce != self._nonce or _bytes(binding) != self._binding.encode():
            raise ScramRefused("the client's final message does not continue its first one")
        signed = f"{self._signed},{without_proof}".encode()
        known = self._credential
        client_key = _xor(_bytes(proof), _hmac(self._algorithm, known.stored_key, signed))
        if not hmac.compare_digest(hashlib.new(self._algorithm, client_key).digest(), known.stored_key):
            raise ScramRefused("wrong user name or password")
        return f"v={_base64(_hmac(self._algorithm, known.server_key, signed))}".encode()


def _hmac(algorithm: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, algorithm)


def _xor(one: bytes, other: bytes) -> bytes:
    if len(one) != len(other):
        raise ScramRefused("a proof of the wrong length")
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _fields(text: str, names: str) -> list[str]:
    """Returns the values of a message's first attributes, in order, and ignores the rest."""
    parts = text.split(",")
    if len(parts) < len(names) or any(
        not part.startswith(f"{name}=") for name, part in zip(names, parts, strict=False)
    ):
        raise ScramRefused(f"a message without {names[0]}=")
    return [part[2:] for part in parts[: len(names)]]


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramRefused(f"a message of {len(message)} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramRefused("a message that is not UTF-8") from None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ScramRefused("an iteration count that is no number")
    return int(text)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramRefused("a value that is not base64") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
