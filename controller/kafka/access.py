"""Decides what clients may do: by super users and ACLs in ZooKeeper, and by quotas on mutations (KIP-599).

The lists are read beside the queue, from the begin of a term on; calls wait for that. Afterwards only the lists that a
notification names are read again. Until then the old ones hold, as at every broker. A new term begins with full buckets
of quotas, as a new controller of Kafka does.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from brokers.listener.envelopes import CarriedCall, NotController
from brokers.wire.versions import Api
from configs.sections import ControllerSettings
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import NotConnected, OutcomeUnknown, ZkError
from metadata_store.nodes.acl_nodes import CHANGES, Place, read_acl_changes, read_acls, read_lists
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.acls import CLUSTER_NAME, Acls, Operation, Resource, allowed, canonical_host, unreadable
from state_machines.admin_rules.mutation_quotas import Bucket, Level, Quota, charge, levels, quota_of

log = logging.getLogger("regent.controller")

ANONYMOUS: Final = "User:ANONYMOUS"
"""Principal of clients of a cluster without authentication; no client of a secured endpoint gets it."""
AGAIN_S: Final = 30.0
"""Pause before lists that ZooKeeper refused are read again."""
RETRY_S: Final = 2.0
"""Pause before lists are read again whose reading failed: the connection may stand, and then no event follows."""
MALFORMED_NAMED_MAX: Final = 100
"""Paths of malformed lists that were logged; further ones are not named."""
V = TypeVar("V")
CALLERS_MAX: Final = 10_000
"""Callers whose rates and buckets are kept; the one that was used longest ago goes first."""
WINDOW_S: Final = 11.0
"""Kafka's defaults: 11 windows of 1 s."""
STRICT_SINCE: Final[Mapping[Api, int]] = {Api.CREATE_TOPICS: 6, Api.CREATE_PARTITIONS: 3, Api.DELETE_TOPICS: 5}
"""First versions whose callers know THROTTLING_QUOTA_EXCEEDED; other calls pass, with a throttle time."""


class Principals(Struct, frozen=True):
    """Holds ``super_users``, as Kafka's ``super.users``, which knows no wildcard."""

    super_users: frozenset[str] = frozenset()

    def may(self, principal: str) -> bool:
        """Checks whether ``principal`` may request changes."""
        return principal == ANONYMOUS or principal in self.super_users


def principals(names: str) -> Principals:
    """Splits the setting: names between semicolons."""
    return Principals(frozenset(_names(names)))


def _names(names: str) -> Iterable[str]:
    return (name.strip() for name in names.split(";") if name.strip())


class Authorizer:
    """Authorizes calls in one term. ``lists``: whether ACLs are read; ``open_``: the result where there is none.

    ``elsewhere``: the brokers' authorizer keeps its lists where no other process reads them. ``served``: whether the
    topics are known already, before :meth:`serve`. Without authentication, and where no authorizer was ever used, every
    client may do everything.
    """

    def __init__(
        self,
        super_users: Principals,
        *,
        lists: bool = False,
        open_: bool = False,
        elsewhere: bool = False,
        served: bool = True,
    ) -> None:
        self._super_users = super_users
        self._elsewhere = elsewhere
        self._open = open_
        self.lists = lists
        self._acls = Acls()
        self._known = asyncio.Event()
        self._served = asyncio.Event()
        self._changed = asyncio.Event()
        self._all = True
        self._seen: dict[str, str] = {}
        self._told: set[str] = set()
        self._closed: set[Place] = set()
        self._over = False
        if not lists:
            self._known.set()
        if served:
            self._served.set()

    # -- queries of calls

    async def ready(self) -> None:
        """Waits until lists and topics are known; raises NotController where the term ends first."""
        await self._served.wait()
        await self._known.wait()
        if self._over:
            raise NotController

    def unrestricted(self, principal: str) -> bool:
        """Checks whether ``principal`` may do everything."""
        if principal == ANONYMOUS and (self._elsewhere or self._acls.found):
            return ANONYMOUS in self._super_users.super_users
        return self._super_users.may(principal)

    def may(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        """Checks whether ``principal`` may do one thing."""
        if self.unrestricted(principal):
            return True
        from_ = canonical_host(host)
        return self.lists and allowed(self._acls, principal, from_, operation, resource, name, open_=self._open)

    def may_cluster(self, principal: str, host: str, operation: Operation) -> bool:
        """Checks whether ``principal`` may perform an operation on the cluster itself."""
        return self.may(principal, host, operation, Resource.CLUSTER, CLUSTER_NAME)

    # -- the lists

    def serve(self) -> None:
        """Takes the model: requests by topic id can be judged from now on."""
        self._served.set()

    def look_again(self, *, everything: bool) -> None:
        """Has changed lists read again; ``everything``: all of them, because watches were gone."""
        self._all = self._all or everything
        self._changed.set()

    def close(self) -> None:
        """Ends the reading: the term is over."""
        self._over = True
        self._known.set()
        self._served.set()

    async def follow(self, zk: ZooKeeper) -> None:
        """Keeps the lists up to date until cancelled.

        A timer reads lists again whose reading failed, or that ZooKeeper refused: neither a server in trouble nor a
        repaired ACL of a znode fires a watch.
        """
        self._changed.set()
        refused, failed = "", False
        while True:
            pause_s = RETRY_S if failed else AGAIN_S if refused or self._closed else None
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._read(zk)
                if refused:
                    log.info("access control lists are readable again, and hold")
                refused = ""
            except (NotConnected, OutcomeUnknown):
                self._all = failed = True
                continue
            except ZkError as error:
                if refused != str(error):
                    log.error(
                        "access control lists cannot be read (%s): only super users are allowed anything; give "
                        "the daemon's identity in ZooKeeper the right to read, they are read again every %.0f s",
                        error,
                        AGAIN_S,
                    )
                self._acls, self._all, refused = unreadable(), True, str(error)
            failed = False
            self._known.set()

    async def _read(self, zk: ZooKeeper) -> None:
        since = zk.last_zxid
        everything, self._all = self._all, False
        there = [parent for parent in CHANGES if await zk.exists(parent) is not None]
        absent = [parent for parent in CHANGES if parent not in there]
        await zk.watch(children=there, exists=absent, since_zxid=since)
        await zk.sync()
        places, malformed = await read_acl_changes(zk, self._seen)
        if everything or malformed or (there and not self._acls.found):
            found = await read_acls(zk)
            self._acls, self._closed = found.acls, found.closed
            malformed = found.malformed
        else:
            self._closed = await read_lists(zk, self._acls, places | self._closed, malformed.append)
        for bad in malformed:
            self._complain(bad)

    def _complain(self, bad: MalformedNode) -> None:
        if str(bad) not in self._told and len(self._told) < MALFORMED_NAMED_MAX:
            self._told.add(str(bad))
            remedy = "until it is repaired, for instance with kafka-acls, it allows only super users anything"
            log.error("%s; %s", bad, remedy)


def authorizer_of(settings: ControllerSettings) -> Authorizer:
    """Builds the authorizer from the settings."""
    return Authorizer(
        principals(settings.super_users),
        lists=settings.acls == "zookeeper",
        open_=settings.allow_everyone_if_no_acl_found,
        elsewhere=settings.acls == "none",
        served=False,
    )


class Payer(NamedTuple):
    """Identifies a caller: ``user`` without its type, ``client`` empty without an id; ``strict``: may be refused."""

    user: str
    client: str
    strict: bool


def payer(call: CarriedCall) -> Payer:
    """Returns the payer of a call."""
    return Payer(call.principal.partition(":")[2], call.client_id, call.version >= STRICT_SINCE[call.api])


class QuotaBuckets:
    """Keeps the rates and the buckets. ``window_s``: a bucket holds the tokens of so many seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self._known: dict[tuple[str, str], Quota | None] = {}
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def forget(self) -> None:
        """Forgets the rates after a configuration changed; they are read again when needed. Buckets stay."""
        self._known.clear()

    def unknown(self, payers: Iterable[Payer]) -> list[Level]:
        """Returns the names whose rates must be read before these payers are charged."""
        new = [payer for payer in payers if payer[:2] not in self._known]
        return list(dict.fromkeys(level for payer in new for level in levels(payer.user, payer.client)))

    def accounts(self, payers: Iterable[Payer], rates: Mapping[Level, float]) -> list[Account]:
        """Returns an account for each payer; ``rates``: the read rates of unknown ones."""
        asking = list(payers)
        found: dict[tuple[str, str], Quota | None] = {}
        for user, client, _ in asking:
            caller = user, client
            found[caller] = self._known.pop(caller) if caller in self._known else quota_of(user, client, rates)
        for caller, quota in found.items():
            _put(self._known, caller, quota)
        return [Account(self, found[user, client], strict) for user, client, strict in asking]

    def charge(self, quota: Quota, mutations: int, now_s: float, *, strict: bool) -> tuple[bool, int]:
        """Charges mutations; returns whether they are allowed, and the milliseconds that the caller is to wait."""
        bucket = self._buckets.pop(quota.payer, None)
        charged = charge(bucket, quota.rate, self.window_s, mutations, now_s, strict=strict)
        _put(self._buckets, quota.payer, charged.bucket)
        return charged.allowed, charged.throttle_ms


def _put(kept: dict[tuple[str, str], V], key: tuple[str, str], value: V) -> None:
    kept[key] = value
    if len(kept) > CALLERS_MAX:
        del kept[next(iter(kept))]


class Account:
    """Charges one call; without a quota everything is allowed."""

    def __init__(self, quotas: QuotaBuckets, quota: Quota | None = None, strict: bool = False) -> None:
        self._quotas = quotas
        self._quota = quota
        self._strict = strict
        self._free_s = 0.0

    def charge(self, mutations: int) -> bool:
        """Charges partitions to create or delete; returns whether so many are allowed now."""
        if self._quota is None:
            return True
        now_s = asyncio.get_running_loop().time()
        allowed, throttle_ms = self._quotas.charge(self._quota, mutations, now_s, strict=self._strict)
        if throttle_ms:
            self._free_s = now_s + throttle_ms / 1000
        return allowed

    @property
    def throttle_ms(self) -> int:
        """Returns how long the caller is still to wait: the response may come long after the charge."""
        left_ms = (self._free_s - asyncio.get_running_loop().time()) * 1000
        return max(0, math.ceil(round(left_ms, 3)))
