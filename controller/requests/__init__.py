"""Requests of brokers and admin clients: their values, their codec, their authorization, and their way to a handler.

The bytes on the wire belong to :mod:`brokers.wire`.
"""
