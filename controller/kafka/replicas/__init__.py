"""Handles replicas that no assignment names: strays, missed removals, and waits that operators gave up."""
