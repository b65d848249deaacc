"""Declares and loads typed settings, and holds the files that operators install."""
