"""Plans reassignments: a goal and a view of the cluster give moves, refusals and a summary."""
