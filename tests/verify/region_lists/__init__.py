"""Writes linked lists to the example service while its processes die, and verifies that no node is lost."""
