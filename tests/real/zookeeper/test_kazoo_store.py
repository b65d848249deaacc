"""kazoo with a real server fulfils the contract, with MultiRead and, as for old servers, without."""

from __future__ import annotations

from tests.contracts.closing import ClosingContract
from tests.contracts.kafka import KafkaStoreContract
from tests.contracts.nodes import NodeContract
from tests.contracts.port import PortContract


class TestKazoo(PortContract):
    """The port."""


class TestKazooWithoutMultiRead(NodeContract):
    """ZooKeeper before 3.6."""

    options = {"multi_read": False}


class TestKafkaStoreOnRealZooKeeper(KafkaStoreContract):
    """The store on it."""


class TestClosing(ClosingContract):
    """Closing regent's znodes."""
