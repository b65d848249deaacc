"""Reaches ZooKeeper through kazoo."""

from metadata_store.kazoo_adapter.adapter import KazooZooKeeper

__all__ = ["KazooZooKeeper"]
