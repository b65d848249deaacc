"""Holds the role in ZooKeeper: claim, queue of daemons, lock, lease, and the holder that brokers see.

This package knows no term and no broker protocol.
"""
