"""Declares and loads typed settings, and holds the files that operators install.

``values`` and ``sections`` check one key, ``rules`` relations of keys; ``loading`` runs both.
"""
