"""Applies permissions in a term: principals, access control lists and quotas. The pure core holds the rules."""
