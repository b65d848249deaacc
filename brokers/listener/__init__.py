"""The controller listener: connections of brokers and admin endpoints, bounded before they are read.

What a request leads to is decided in :mod:`controller.requests`.
"""
