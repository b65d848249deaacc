"""Decides as the pure core: values in, values out. It has no I/O, clock, randomness or logging."""
