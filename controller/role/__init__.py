"""The role in ZooKeeper: claim, queue of daemons, lock, lease, and the holder that others see.

It knows no term and no broker protocol.
"""
