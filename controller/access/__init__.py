"""Permissions of a term: principals, access control lists and quotas. Rules are pure and live in the core."""
