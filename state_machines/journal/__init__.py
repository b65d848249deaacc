"""The rows of the journal, and the invariants that one row shows by itself."""
