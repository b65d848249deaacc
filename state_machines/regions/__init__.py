"""Decides on regions, the key ranges of tables that one server owns at a time. Split and merge belong here."""
