"""Fences every write: the check of the controller epoch, its outcome, its size, and how many are under way."""
