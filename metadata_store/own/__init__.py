"""Regent's own znodes below ``/regent``: the registry of their paths, and the ACLs that follow from it.

A znode gets its ACL by its path where it is created, and is closed by its path where it is open. No other module lists
them. A new znode needs an entry in the registry, and nothing else.
"""
