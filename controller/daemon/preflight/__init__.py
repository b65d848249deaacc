"""Checks a cluster before a take-over: no check writes, and every refusal names its remedy."""
