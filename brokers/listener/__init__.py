"""Serves the controller listener: connections of brokers and admin endpoints, bounded before they are read.

:mod:`controller.kafka.requests` decides the outcome of each request.
"""
