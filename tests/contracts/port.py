"""What every adapter of the ZooKeeper port must do: the same tests for memory and for kazoo with a real server.

A subclass needs a ``backend`` fixture.
"""

from __future__ import annotations

from tests.contracts.acls import AclContract, ChrootContract
from tests.contracts.nodes import HookContract, NodeContract
from tests.contracts.sessions import SessionContract, WatchContract


class PortContract(NodeContract, WatchContract, SessionContract, AclContract, HookContract, ChrootContract):
    """Everything."""
