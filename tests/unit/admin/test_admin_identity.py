"""A client's principal, derived from the exchanges between the client and its broker."""

from __future__ import annotations

import pytest

from admin.identity import Identity
from brokers.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

SCRAM_FINAL = b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="
CHALLENGE = b"r=fyko+d2lbbFgONRv9qkxdawL3rfc,s=QSXCR+Q6sek8bf92,i=4096"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def handshake(identity: Identity, mechanism: str, error: int = 0) -> None:
    identity.observe(SaslHandshakeRequest(mechanism), SaslHandshakeResponse(error, ("PLAIN", "SCRAM-SHA-256")))


def step(identity: Identity, message: bytes, response: bytes = b"", error: int = 0, lifetime_ms: int = 0) -> None:
    identity.observe(SaslAuthenticateRequest(message), SaslAuthenticateResponse(error, None, response, lifetime_ms))


@pytest.mark.parametrize(
    ("message", "principal"),
    [
        (b"\0alice\0secret", "User:alice"),
        (b"alice\0alice\0secret", "User:alice"),
        ("\0zoë\0secret".encode(), "User:zoë"),
        (b"alice\0secret", None),
        (b"\0alice\0sec\0ret", None),
        (b"\0\0secret", None),
        (b"\0\xff\0secret", None),
        (b"", None),
    ],
)
def test_plain_names_the_authenticated_user(message: bytes, principal: str | None) -> None:
    identity = Identity()
    handshake(identity, "PLAIN")
    assert identity.principal is None
    step(identity, message)
    assert identity.principal == principal


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("first", "principal"),
    [
        (b"n,,n=alice,r=fyko", "User:alice"),
        (b"n,a=alice,n=alice,r=fyko", "User:alice"),
        (b"n,,n=a=3Db=2Cc,r=fyko", "User:a=b,c"),
        (b"n,,n=alice,r=fyko,tokenauth=false", "User:alice"),
        (b"n,,n=token,r=fyko,tokenauth=true", None),
        (b"n,,n=token,r=fyko,x=y,tokenauth=True", None),
        (b"n,,m=ext,n=alice,r=fyko", None),
        (b"n,,n=,r=fyko", None),
        (b"n,,r=fyko", None),
    ],
)
def test_scram_names_the_user_after_the_final_message(mechanism: str, first: bytes, principal: str | None) -> None:
    identity = Identity()
    handshake(identity, mechanism)
    step(identity, first, CHALLENGE)
    assert identity.principal is None
    step(identity, b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfc,p=...", SCRAM_FINAL)
    assert identity.principal == principal


def test_the_name_of_the_first_message_stays() -> None:
    identity = Identity()
    handshake(identity, "SCRAM-SHA-256")
    step(identity, b"n,,n=alice,r=fyko", CHALLENGE)
    step(identity, b"n,,n=root,r=fyko", SCRAM_FINAL)
    assert identity.principal == "User:alice"


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", "OWN"])
def test_other_mechanisms_leave_the_principal_unknown(mechanism: str) -> None:
    identity = Identity()
    handshake(identity, mechanism)
    step(identity, b"n,a=alice,\1auth=Bearer x\1\1")
    step(identity, b"\0alice\0secret")
    assert identity.principal is None


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI"])
def test_a_response_with_bytes_does_not_end_an_exchange(mechanism: str) -> None:
    """A broker responds to a bad token without an error code, and gives its reason as bytes."""
    identity = Identity()
    handshake(identity, mechanism)
    step(identity, b"n,,\1auth=Bearer garbage\1\1", b'{"status":"invalid_token"}')
    assert not identity.authenticated
    step(identity, b"n,,\1auth=Bearer sound\1\1")
    assert identity.authenticated


def test_a_refused_client_has_no_principal_until_its_next_handshake() -> None:
    identity = Identity()
    handshake(identity, "PLAIN")
    step(identity, b"\0alice\0wrong", error=58)
    assert identity.principal is None
    step(identity, b"\0alice\0secret")
    assert identity.principal is None, "a new exchange begins with a handshake"


def test_a_refused_mechanism_begins_no_exchange() -> None:
    identity = Identity()
    handshake(identity, "PLAIN", error=33)
    step(identity, b"\0alice\0secret")
    assert identity.principal is None


def test_a_session_ends_unless_it_is_renewed() -> None:
    clock = Clock()
    identity = Identity(clock)
    handshake(identity, "PLAIN")
    step(identity, b"\0alice\0secret", lifetime_ms=10_000)
    clock.now_s += 9.9
    assert identity.principal == "User:alice"
    handshake(identity, "PLAIN")
    assert identity.principal == "User:alice", "the session goes on while it is renewed"
    step(identity, b"\0alice\0secret", lifetime_ms=10_000)
    clock.now_s += 9.9
    assert identity.principal == "User:alice"
    clock.now_s += 0.2
    assert identity.principal is None


def test_a_renewal_that_fails_ends_the_session() -> None:
    identity = Identity()
    handshake(identity, "PLAIN")
    step(identity, b"\0alice\0secret")
    handshake(identity, "PLAIN")
    step(identity, b"\0root\0secret", error=58)
    assert identity.principal is None


def test_credentials_are_left_out_of_the_representation() -> None:
    assert "secret" not in repr(SaslAuthenticateRequest(b"\0alice\0secret"))
    assert "v=" not in repr(SaslAuthenticateResponse(0, None, SCRAM_FINAL))
