"""Keeps the journal: decisions, observations and begins of terms, row by row, in files of this daemon.

:mod:`~controller.journal.term_journal` is a domain's interface, :mod:`~controller.journal.journal` the queue and the
writing thread, :mod:`~controller.journal.segments` the files, :mod:`~controller.journal.reader` reads them again.
"""
