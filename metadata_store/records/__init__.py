"""Stores procedure records: their port, their codec, and the stores in SQLite and ZooKeeper.

What a record means is the core's (:mod:`state_machines.procedures`); nothing here decides how a procedure goes on.
"""
