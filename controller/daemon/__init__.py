"""Runs the daemon: ZooKeeper sessions, its turn in the queue, terms one after the other, the end of the process.

The inside of a term belongs to :mod:`controller.kafka.term`.
"""
