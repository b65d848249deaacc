"""Who may do what: principals, access control lists and quotas of a term. Rules are pure and live in the core."""
