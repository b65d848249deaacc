"""Rows of the journal and lines of the log about regions."""
