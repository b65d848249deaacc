"""Shows services whose regions regent assigns."""
