"""Declares the kinds of procedures on a Kafka cluster: their steps, which work with the controller of a term.

Decisions are in ``state_machines/decisions/``; the engine that runs the steps is in ``controller/procedures/``.
"""
