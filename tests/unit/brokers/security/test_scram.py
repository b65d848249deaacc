"""SCRAM: the vectors of the RFCs, both sides against each other, and sides that violate the protocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.security.authentication import Authenticator
from brokers.security.scram import HASHES, ITERATIONS_MAX, ScramClient, ScramRefused, ScramServer, credential

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = bytes.fromhex("5b6d99689d12358eec104b1212366fa0")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
ANSWER = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNED = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(password: str = "pencil", user: str = "user", mechanism: str = "SCRAM-SHA-256") -> ScramClient:
    return ScramClient(mechanism, user, password, NONCE)


def server(mechanism: str = "SCRAM-SHA-256", password: str = "pencil") -> ScramServer:
    known = credential(mechanism, password, SALT)
    return ScramServer(mechanism, lambda _: known, SERVER_NONCE)


def test_the_exchange_of_rfc_7677() -> None:
    ours, theirs = client(), server()
    assert ours.first() == FIRST
    assert credential("SCRAM-SHA-256", "pencil", SALT).salt == SALT
    assert ours.final(ANSWER) == FINAL
    ours.verify(SIGNED)
    answer = theirs.first(FIRST)
    assert answer.partition(b",s=")[0] == ANSWER.partition(b",s=")[0]
    assert theirs.final(client().final(answer) if ours.first() else b"")


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["kafka", "a,b=c", "=2C", "ключ"])
def test_both_sides_agree_on_every_kind_of_name(mechanism: str, user: str) -> None:
    ours, theirs = client("geheim, geheim", user, mechanism), server(mechanism, "geheim, geheim")
    ours.verify(theirs.final(ours.final(theirs.first(ours.first()))))
    assert theirs.user == user


@pytest.mark.parametrize("mechanism", HASHES)
def test_each_side_refuses_one_that_does_not_know_the_password(mechanism: str) -> None:
    ours, theirs = client("wrong", mechanism=mechanism), server(mechanism)
    final = ours.final(theirs.first(ours.first()))
    with pytest.raises(ScramRefused, match="wrong user name or password"):
        theirs.final(final)
    for message in (b"v=AAAA", b"e=other-error", b"x", b"v=" + b"!" * 9):
        with pytest.raises(ScramRefused):
            ours.verify(message)


@pytest.mark.parametrize(
    "message",
    [
        b"r=other,s=AAAA,i=4096",
        b"r=" + NONCE.encode() + b",s=AAAA,i=4096",
        b"r=" + NONCE.encode() + b"x,s=AAAA,i=1",
        b"r=" + NONCE.encode() + f"x,s=AAAA,i={ITERATIONS_MAX + 1}".encode(),
        b"r=" + NONCE.encode() + b"x,s=AAAA,i=99999999999999999999",
        b"r=" + NONCE.encode() + b"x,s=?,i=4096",
        b"s=AAAA",
        b"\xff",
        b"r=" + b"x" * 5_000,
    ],
)
def test_a_client_refuses_a_server_that_violates_the_protocol(message: bytes) -> None:
    with pytest.raises(ScramRefused):
        client().final(message)


@pytest.mark.parametrize(
    "message", [b"p=tls-unique,,n=user,r=x", b"n,a=other,n=user,r=x", b"n,,r=x,n=user", b"n", b"n,,n=user", b"\xff"]
)
def test_a_server_refuses_an_unsupported_first_message(message: bytes) -> None:
    with pytest.raises(ScramRefused):
        server().first(message)


@given(st.binary(max_size=80), st.integers(0, 200))
def test_a_changed_final_message_is_refused(garbage: bytes, at: int) -> None:
    ours, theirs = client(), server()
    final = ours.final(theirs.first(ours.first()))
    changed = final[: at % len(final)] + garbage
    if changed != final:
        with pytest.raises(ScramRefused):
            theirs.final(changed)


def test_a_final_message_with_another_channel_binding_than_the_first_one_is_refused() -> None:
    """Its proof is right: somebody in between changed the first message."""
    ours, theirs = client(), server()
    first = theirs.first(b"y" + ours.first()[1:])
    with pytest.raises(ScramRefused, match="does not continue its first one"):
        theirs.final(ours.final(first))


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_stranger_does_not_find_out_the_users(mechanism: str) -> None:
    """Each name has a salt of its own, always the same, and the same number of iterations; no proof of it is right."""
    authenticator, salts = Authenticator(mechanism, {"kafka": "secret"}), set[bytes]()
    for name in ("kafka", "nobody", "somebody"):
        first = [authenticator.scram().first(f"n,,n={name},r=x".encode()).partition(b",s=")[2] for _ in range(3)]
        assert len(set(first)) == 1
        assert first[0].endswith(b",i=4096")
        salts.add(first[0])
        ours, theirs = client("wrong", name, mechanism), authenticator.scram()
        with pytest.raises(ScramRefused, match="wrong user name or password"):
            theirs.final(ours.final(theirs.first(ours.first())))
    assert len(salts) == 3


def test_plain_needs_a_known_user_that_acts_for_itself_and_its_password() -> None:
    assert Authenticator("PLAIN", {"a": "b"}).plain(b"a\0a\0b") == "a"
    assert Authenticator("PLAIN", {"a": "b"}).plain(b"\0a\0b") == "a"
    for wrong in (b"\0a\0", b"\0a\0c", b"\0x\0b", b"\0x\0", b"y\0a\0b", b"a", b"\0\xff\0b"):
        with pytest.raises(ScramRefused):
            Authenticator("PLAIN", {"a": "b"}).plain(wrong)
