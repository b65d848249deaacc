"""Runs the daemon: ZooKeeper sessions, its turn in the queue, terms one after the other, take-over and hand-back.

The inside of a term belongs to :mod:`controller.kafka.term`.
"""
