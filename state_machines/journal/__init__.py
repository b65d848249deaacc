"""Defines the rows of the journal, and judges the invariants that one row shows by itself."""
