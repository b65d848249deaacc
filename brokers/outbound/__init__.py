"""What the controller sends: one channel per broker, batches encoded from the model, and their acknowledgements.

What has to be sent is decided in :mod:`state_machines.propagation`.
"""
