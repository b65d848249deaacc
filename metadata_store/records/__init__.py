"""Stores of procedure records: their port, their codec, and SQLite.

What a record means is the core's (:mod:`state_machines.procedures`); nothing here decides how a procedure goes on.
"""
