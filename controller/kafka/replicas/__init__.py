"""Replicas that a broker has and should not have: strays, missed removals, and waits that operators gave up."""
