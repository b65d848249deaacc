"""Kinds of procedures on regions, tables and servers. Their steps ask the model and the dispatcher, and never wait."""
