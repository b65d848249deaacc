"""The daemon: ZooKeeper sessions, the turn in the queue, terms one after the other, and the end of the process.

The inside of a term belongs to :mod:`controller.term`.
"""
