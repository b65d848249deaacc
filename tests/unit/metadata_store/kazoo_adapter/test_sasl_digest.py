"""SASL DIGEST-MD5 as a client: the example of RFC 2831, and servers that violate it."""

from __future__ import annotations

import pytest

from metadata_store.kazoo_adapter import sasl_digest
from metadata_store.kazoo_adapter.sasl_digest import DigestMd5, SaslFailed, directives

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def test_the_example_of_rfc_2831(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_digest, "DIGEST_URI", b"imap/elwood.innosoft.com")
    login = DigestMd5("chris", "secret", "OA6MHXh6VqTrRk")
    response = directives(login.respond(CHALLENGE))
    assert response[b"response"] == b"d388dad90d4bbd760a152321f2143af7"
    assert (response[b"username"], response[b"realm"], response[b"nc"]) == (
        b"chris",
        b"elwood.innosoft.com",
        b"00000001",
    )
    login.verify(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    with pytest.raises(SaslFailed, match="has not proved"):
        login.verify(b"rspauth=00000000000000000000000000000000")


def test_quotes_are_escaped_both_ways() -> None:
    login = DigestMd5('a "b" \\c', "secret", "x")
    assert directives(login.respond(CHALLENGE))[b"username"] == b'a "b" \\c'


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"", "not DIGEST-MD5"),
        (b'nonce="",algorithm=md5-sess', "not DIGEST-MD5"),
        (b'nonce="x"', "not DIGEST-MD5"),
        (b'nonce="x",algorithm=md5-sess,qop="auth-conf"', "protection of messages"),
        (b"\xff\xff\xff", "cannot be understood"),
        (b'nonce="x', "cannot be understood"),
    ],
)
def test_a_malformed_or_unsupported_challenge_is_refused(challenge: bytes, why: str) -> None:
    with pytest.raises(SaslFailed, match=why):
        DigestMd5("u", "p", "x").respond(challenge)
