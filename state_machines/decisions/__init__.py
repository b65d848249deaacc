"""Decides, in one module per decision: the model and an event in, changes out. Nothing is applied here."""
