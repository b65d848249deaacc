"""Who may do what through the admin endpoint: super users, and who Kafka's access control lists in ZooKeeper allow.

The lists are read beside the queue, from the first moment of a term on; calls wait for that. Afterwards only those
are read again that a notification names. Until changes are noticed the old ones hold, as at every broker.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from brokers.listener.envelopes import NotController
from configs.sections import ControllerSettings
from controller.access.principals import ANONYMOUS, Principals, principals
from metadata_store.codecs.base import Malformed
from metadata_store.errors import NotConnected, OutcomeUnknown, ZkError
from metadata_store.nodes.acl_nodes import CHANGES, Place, read_acl_changes, read_acls, read_lists
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.acls import CLUSTER_NAME, Acls, Operation, Resource, allowed, canonical_host, unreadable

log = logging.getLogger("regent.controller")

AGAIN_S: Final = 30.0
"""How soon lists that ZooKeeper refused to give are asked for again."""
MALFORMED_NAMED_MAX: Final = 100
"""Paths of lists that cannot be understood and that were complained of; further ones are not named."""


class Authorizer:
    """Of one term. ``lists``: whether access control lists are read at all; ``open_``: what holds where there is none.

    ``elsewhere``: the brokers' authorizer keeps its lists where nobody else reads them. ``served``: whether the topics
    are known already, or :meth:`serve` will say so. Without authentication, and where no authorizer was ever used,
    everybody may do everything.
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

    # -- asked by calls

    async def ready(self) -> None:
        """Waits until lists and topics are known; raises NotController where the term ends first."""
        await self._served.wait()
        await self._known.wait()
        if self._over:
            raise NotController

    def unrestricted(self, principal: str) -> bool:
        """Whether ``principal`` may do everything."""
        if principal == ANONYMOUS and (self._elsewhere or self._acls.found):
            return ANONYMOUS in self._super_users.super_users
        return self._super_users.may(principal)

    def may(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether ``principal`` may do one thing."""
        if self.unrestricted(principal):
            return True
        from_ = canonical_host(host)
        return self.lists and allowed(self._acls, principal, from_, operation, resource, name, open_=self._open)

    def may_cluster(self, principal: str, host: str, operation: Operation) -> bool:
        """The same for the cluster itself."""
        return self.may(principal, host, operation, Resource.CLUSTER, CLUSTER_NAME)

    # -- the lists

    def serve(self) -> None:
        """The model was read: who asks by the id of a topic can be judged."""
        self._served.set()

    def look_again(self, *, everything: bool) -> None:
        """Something changed; ``everything``: nobody knows what, because watches were gone."""
        self._all = self._all or everything
        self._changed.set()

    def close(self) -> None:
        """The term is over."""
        self._over = True
        self._known.set()
        self._served.set()

    async def follow(self, zk: ZooKeeper) -> None:
        """Keeps the lists up to date until cancelled. A lost connection is waited for: :meth:`look_again` ends it.

        Lists that ZooKeeper does not give are asked for again by the clock: a mended ACL of a znode fires no watch.
        """
        self._changed.set()
        refused = ""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if refused or self._closed else None):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._read(zk)
                if refused:
                    log.info("access control lists are readable again, and hold")
                refused = ""
            except (NotConnected, OutcomeUnknown):
                self._all = True
                continue
            except ZkError as error:
                if refused != str(error):
                    log.error(
                        "access control lists cannot be read (%s): nobody but super users is allowed anything; give "
                        "the daemon's identity in ZooKeeper the right to read, they are asked for every %.0f s",
                        error,
                        AGAIN_S,
                    )
                self._acls, self._all, refused = unreadable(), True, str(error)
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

    def _complain(self, bad: Malformed) -> None:
        if str(bad) not in self._told and len(self._told) < MALFORMED_NAMED_MAX:
            self._told.add(str(bad))
            remedy = "until it is mended, for instance with kafka-acls, only super users are allowed anything by it"
            log.error("%s; %s", bad, remedy)


def authorizer_of(settings: ControllerSettings) -> Authorizer:
    """As the settings say."""
    return Authorizer(
        principals(settings.super_users),
        lists=settings.acls == "zookeeper",
        open_=settings.allow_everyone_if_no_acl_found,
        elsewhere=settings.acls == "none",
        served=False,
    )
