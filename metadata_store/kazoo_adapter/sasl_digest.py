"""Implements SASL DIGEST-MD5 (RFC 2831), ZooKeeper's one mechanism of passwords."""

from __future__ import annotations

import hashlib
import re
from typing import Final

DIGEST_URI: Final = b"zookeeper/zk-sasl-md5"
"""ZooKeeper's servers expect this name, whatever host they run on."""
QOP: Final = b"auth"
FIRST_USE: Final = b"00000001"
_DIRECTIVE: Final = re.compile(rb'\s*([a-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')


class SaslFailed(Exception):
    """The server does not speak DIGEST-MD5 as it should, or did not prove its identity."""


class DigestMd5:
    """One exchange: :meth:`respond` to the server's challenge, then :meth:`verify` its last message."""

    def __init__(self, user: str, password: str, cnonce: str) -> None:
        self._user = user.encode()
        self._password = password.encode()
        self._cnonce = cnonce.encode()
        self._expected = b""

    def respond(self, challenge: bytes) -> bytes:
        """Returns the response to a challenge; raises :class:`SaslFailed` where there is none."""
        fields = directives(challenge)
        nonce, realm = fields.get(b"nonce", b""), fields.get(b"realm", b"")
        if not nonce or fields.get(b"algorithm") != b"md5-sess":
            raise SaslFailed("the server's challenge is not DIGEST-MD5")
        if QOP not in fields.get(b"qop", QOP).replace(b" ", b"").split(b","):
            raise SaslFailed("the server insists on a protection of messages that ZooKeeper's clients do not have")
        secret = _md5(b":".join((self._user, realm, self._password))) + b":" + nonce + b":" + self._cnonce
        proof = self._proof(secret, nonce, b"AUTHENTICATE:" + DIGEST_URI)
        self._expected = self._proof(secret, nonce, b":" + DIGEST_URI)
        return b",".join(
            (
                b'username="' + _escaped(self._user) + b'"',
                b'realm="' + _escaped(realm) + b'"',
                b'nonce="' + _escaped(nonce) + b'"',
                b'cnonce="' + self._cnonce + b'"',
                b"nc=" + FIRST_USE,
                b"qop=" + QOP,
                b'digest-uri="' + DIGEST_URI + b'"',
                b"response=" + proof,
                b"charset=utf-8",
            )
        )

    def verify(self, answer: bytes) -> None:
        """Verifies that the server knows the password, too; raises :class:`SaslFailed` where it does not."""
        if directives(answer).get(b"rspauth") != self._expected:
            raise SaslFailed("the server has not proved that it knows the password")

    def _proof(self, secret: bytes, nonce: bytes, action: bytes) -> bytes:
        parts = (_md5(secret).hex().encode(), nonce, FIRST_USE, self._cnonce, QOP, _md5(action).hex().encode())
        return _md5(b":".join(parts)).hex().encode()


def directives(text: bytes) -> dict[bytes, bytes]:
    """Parses ``name=value`` pairs, quoted or not; raises :class:`SaslFailed` for anything else."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None or match.end() == at:
            raise SaslFailed("the server's message cannot be understood")
        quoted, plain = match[2], match[3]
        found[match[1]] = plain if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted)
        at = match.end()
    return found


def _escaped(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
