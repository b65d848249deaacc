"""The ACLs of regent's own znodes: from the settings, over their full product, and in a term that begins."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from pydantic import SecretStr

from configs.settings import Settings
from controller.process.zookeeper import own_acls
from controller.role import own_znodes as own
from metadata_store import closing
from metadata_store.acl import ALL, CREATE, DELETE, OPEN, READ, READABLE, WRITE, Acl, digest_acl
from metadata_store.kazoo_adapter.session import Session
from metadata_store.kazoo_adapter.tls import ZooKeeperTls
from metadata_store.nodes import cordon_node, pause_node, stray_nodes
from metadata_store.own import (
    ENDPOINTS,
    OWN,
    REGIONS,
    Access,
    Identities,
    access_of,
    given_acls,
    identities_of,
    is_open,
    own_path,
    shell_text,
    strangers,
)
from metadata_store.port import ANY_VERSION
from tests.contracts.closing import acls_below, writable
from tests.kit.certificates import Authority
from tests.kit.deadlines import eventually
from tests.kit.kafka.daemons import unseated
from tests.kit.kafka.role import changed, settings_for
from tests.kit.kafka.world import KafkaWorld, Seat, in_world

READERS = Acl(READ, "world", "anyone")
MINE = digest_acl("regent", "secret")
LOCK = (MINE, READERS)
HELD_OPEN = (cordon_node.PATH, pause_node.PATH, stray_nodes.PARENT, f"{stray_nodes.PARENT}/1-t", own.HISTORY)


def settings_of(base: Settings, *, digest: bool, sasl: bool, set_acl: bool, hold: bool, announcer: str) -> Settings:
    secret = SecretStr("regent:secret")
    zookeeper = base.zookeeper.model_copy(
        update={"digest": secret if digest else None, "sasl": secret if sasl else None, "set_acl": set_acl}
    )
    controller = base.controller.model_copy(update={"on_absence": "hold" if hold else "brokers"})
    named = {f"zookeeper_{announcer}": SecretStr("announcer:secret")} if announcer else {}
    admin = base.admin.model_copy(update=named)
    return base.model_copy(update={"zookeeper": zookeeper, "controller": controller, "admin": admin})


@pytest.mark.parametrize("announcer", ["", "digest", "sasl"])
def test_each_znode_is_as_closed_as_the_settings_ask(tmp_path_factory: pytest.TempPathFactory, announcer: str) -> None:
    base = settings_for(tmp_path_factory.mktemp("a"))
    for digest, sasl, set_acl, hold in product((False, True), repeat=4):
        if (hold and not digest) or (set_acl and not (digest or sasl)):
            continue  # the settings refuse it
        found = own_acls(settings_of(base, digest=digest, sasl=sasl, set_acl=set_acl, hold=hold, announcer=announcer))
        lists = {one.path: given_acls(one.path, found, secured=set_acl) for one in OWN}
        world = {path for path, acls in lists.items() if is_open(acls, ())}
        if set_acl or hold:
            assert world <= {ENDPOINTS}, "an endpoint without an identity comes and goes"
            assert (ENDPOINTS in world) is (not set_acl and not announcer)
        else:
            roles = {one.path for one in OWN if one.access in (Access.DAEMONS, Access.RECORDS, Access.ENDPOINTS)}
            assert roles <= world, "as /controller is"
        assert (REGIONS in world) is not (digest or sasl), "the domain closes to the identity that it has"
        assert lists[f"{REGIONS}/epoch"] == (LOCK if digest else READABLE if sasl else lists[own.ROOT])
        assert (lists[own.PROCEDURES] == LOCK) is hold, "records are the daemons' alone"
        assert f"{ENDPOINTS}/*" not in world
        if announcer and (set_acl or hold):
            assert [(one.perms, one.scheme) for one in lists[ENDPOINTS][2:]] == [(CREATE | DELETE, announcer)]


OF_SERVERS = {
    f"{REGIONS}/unassigned": CREATE,
    f"{REGIONS}/unassigned/*": READ | WRITE,
    f"{REGIONS}/opened": CREATE | DELETE,
    f"{REGIONS}/opened/*": READ | WRITE,
    f"{REGIONS}/rs": CREATE | DELETE,
    f"{REGIONS}/rs/*": READ | WRITE,
}


@pytest.mark.parametrize("identity", ["digest:kv:IJwNVeVdalTt4CTgTGj8D0vK3KI=", "sasl:kv", "x509:CN=kv,O=x"])
@pytest.mark.parametrize(("digest", "sasl"), [(True, False), (False, True), (True, True)])
def test_servers_of_regions_may_move_znodes_and_nothing_else(
    tmp_path: Path, identity: str, digest: bool, sasl: bool
) -> None:
    base = settings_of(settings_for(tmp_path), digest=digest, sasl=sasl, set_acl=False, hold=False, announcer="")
    found = own_acls(changed(base, "regions", servers_identity=identity))
    without = own_acls(base)
    for one in OWN:
        acls, before = (given_acls(one.path, own, secured=False) for own in (found, without))
        theirs = {acl.perms for acl in acls if f"{acl.scheme}:{acl.id}" == identity}
        assert theirs == ({OF_SERVERS[one.path]} if one.path in OF_SERVERS else set()), one.path
        assert [acl for acl in acls if f"{acl.scheme}:{acl.id}" != identity] == [*before]
        assert not strangers(acls, acls)
        assert not is_open(acls, acls)


@pytest.mark.parametrize(
    ("path", "access", "known"),
    [
        ("/regent", Access.DAEMONS, True),
        ("/regent/pause", Access.DAEMONS, True),
        ("/regent/of_later", Access.DAEMONS, False),
        ("/regent/endpoints", Access.ENDPOINTS, True),
        ("/regent/endpoints/7", Access.ANNOUNCED, True),
        ("/regent/regions/regions/0000001/0000001000", Access.REGIONS, True),
        ("/regent/regions/regions/0000001/0000001000/x", Access.REGIONS, False),
        ("/regent/regions/unassigned", Access.UNASSIGNED, True),
        ("/regent/regions/unassigned/17", Access.MOVED, True),
        ("/regent/regions/unassigned/17/x", Access.MOVED, False),
        ("/regent/regions/opened", Access.OPENED, True),
        ("/regent/regions/opened/17,4", Access.MOVED, True),
        ("/regent/regions/openeds", Access.REGIONS, False),
        ("/regents", None, False),
        ("/regents/pause", None, False),
        ("/controller", None, False),
    ],
)
def test_the_access_of_a_path_follows_from_the_registry(path: str, access: Access | None, known: bool) -> None:
    assert access_of(path) is access
    assert (own_path(path) is not None) is known


SASL = Acl(ALL, "sasl", "kafka")
X509 = Acl(ALL, "x509", "CN=daemon")
PROVEN = identities_of("regent:secret", "kafka:secret", "CN=daemon")
OPS = Acl(ALL, "x509", "CN=ops")


@pytest.mark.parametrize(
    ("found", "wanted", "open_", "strange"),
    [
        ((MINE, SASL, X509, READERS), READABLE, False, []),
        ((MINE, SASL, X509, READERS), LOCK, True, []),  # the settings name the digest alone by now
        ((MINE, Acl(ALL, "sasl", "eve")), READABLE, False, [Acl(ALL, "sasl", "eve")]),
        ((MINE, OPS), READABLE, False, [OPS]),  # another certificate stays, and is shown
        ((MINE, OPS), LOCK, False, [OPS]),
        ((Acl(READ, "sasl", "eve"),), READABLE, False, []),
        ((Acl(DELETE, "ip", "0.0.0.0/0"),), READABLE, True, []),
        ((Acl(DELETE, "ip", "::/0"),), READABLE, True, []),
        ((Acl(DELETE, "ip", "10.0.0.0/8"),), READABLE, False, [Acl(DELETE, "ip", "10.0.0.0/8")]),
        ((Acl(ALL, "sasl", "eve"),), OPEN, False, []),  # any client may
    ],
)
def test_an_acl_is_judged_by_what_the_settings_permit(
    found: tuple[Acl, ...], wanted: tuple[Acl, ...], open_: bool, strange: list[Acl]
) -> None:
    assert is_open(found, wanted, PROVEN) is open_
    assert strangers(found, wanted, PROVEN) == strange


def test_a_certificate_that_the_session_does_not_show_is_a_strangers() -> None:
    assert strangers((X509,), READABLE, identities_of("regent:secret")) == [X509]


def test_the_subject_of_the_daemons_certificate_is_an_identity_of_its_session(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    def identities(file: Path) -> Identities:
        session = Session("zk:2281", session_timeout_ms=1, tls=ZooKeeperTls(authority.file, file))
        return session.identities

    assert identities(authority.signed("a, b")) == {("x509", r"CN=a\, b")}
    assert identities(tmp_path / "none") == set(), "the connection fails then, and says why"


def test_a_list_is_told_as_the_shell_takes_it() -> None:
    announcer = Acl(CREATE | DELETE, "sasl", "announcer")
    assert shell_text((*LOCK, announcer), PROVEN) == "auth::cdrwa,world:anyone:r,sasl:announcer:cd"


async def holding(w: KafkaWorld) -> Seat:
    """Has a term begin in mode ``hold``, after one without a digest: a znode stays open, another one is shared."""
    before = await w.seat()
    for path in HELD_OPEN:
        if w.node(path) is None:
            await w.operator.create(path, b"{}")
    await w.operator.create(own.QUARANTINE, b"")
    await w.operator.set_acls(own.QUARANTINE, [Acl(ALL & ~16, "world", "anyone")], ANY_VERSION)
    await w.operator.set_acls(own.HISTORY, [*LOCK, digest_acl("ops", "theirs", CREATE)], ANY_VERSION)
    await before.crash()
    seat = unseated(w, credentials="regent:secret", hold=True)
    seat.zk.own_acls = dict.fromkeys(Access, LOCK)
    await seat.sit()
    assert set(HELD_OPEN) - {own.HISTORY} <= set(writable(await acls_below(w.operator))), "not before it has the role"
    await seat.begin()
    await w.settle()
    await eventually(lambda: w.counters.open_znodes)
    return seat


@in_world()
async def test_a_term_closes_what_any_client_may_write_and_names_what_it_cannot(w: KafkaWorld) -> None:
    """In mode ``hold``: before the term begins, the daemon before it may have no digest."""
    await holding(w)
    assert writable(await acls_below(w.operator)) == [own.QUARANTINE]
    assert own.QUARANTINE in w.counters.open_znodes


@in_world()
async def test_the_status_names_an_open_znode_until_it_is_closed(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "AGAIN_S", 0.5)
    seat = await holding(w)
    assert f"{own.HISTORY} by digest:ops (c)" in w.counters.open_znodes
    await seat.zk.set_acls(own.HISTORY, LOCK, ANY_VERSION)  # as the command does
    await eventually(lambda: own.HISTORY not in w.counters.open_znodes)
    assert own.QUARANTINE in w.counters.open_znodes
    await seat.zk.delete(own.QUARANTINE, ANY_VERSION)
    await eventually(lambda: not w.counters.open_znodes)


@in_world()
async def test_a_daemon_without_the_role_names_no_open_znode(w: KafkaWorld) -> None:
    """The daemon that is active then does."""
    seat = await holding(w)
    await seat.crash()
    assert w.counters.open_znodes == ""


def test_an_identity_whose_hash_is_not_shown_is_the_one_that_the_settings_name() -> None:
    """ZooKeeper shows the hashes of a list to those alone who may change it: not to the daemon what a server made."""
    wanted = [Acl(READ | WRITE, "digest", "kv:IJwNVeVdalTt4CTgTGj8D0vK3KI=")]
    assert not strangers([Acl(READ | WRITE, "digest", "kv:x")], wanted)
    for other in (
        Acl(READ | WRITE | DELETE, "digest", "kv:x"),
        Acl(WRITE, "digest", "eve:x"),
        Acl(WRITE, "sasl", "kv:x"),
    ):
        assert strangers([other], wanted) == [other]
