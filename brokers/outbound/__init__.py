"""Sends the controller's requests: one channel per broker, batches encoded from the model, and acknowledgements.

:mod:`state_machines.propagation` decides which rows have to be sent.
"""
