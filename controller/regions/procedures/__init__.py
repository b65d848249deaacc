"""Declares kinds of procedures on regions, tables and servers. Steps ask model and dispatcher, and never wait."""
