"""The checks before a take-over: each reads, none writes, and every refusal names its remedy."""
