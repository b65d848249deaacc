"""Takes requests of brokers and admin clients: their values, codec, authorization, and way to a handler.

The bytes on the wire belong to :mod:`brokers.wire`.
"""
