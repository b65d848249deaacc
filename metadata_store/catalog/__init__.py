"""Keeps the regions' domain: tables, regions with their owners, servers. One writer, fenced; readers see final states.

Rows are written in the transactions of the procedures that change them, so records and rows never disagree.
"""
