"""Records regions, tables and servers in the journal and in the log."""
