"""Servers of regions in other languages, made from the page of the protocol alone."""
