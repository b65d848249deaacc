"""Provides TLS and SASL between brokers and daemons, in both directions."""
