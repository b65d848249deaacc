"""The journal of decisions: what was decided, observed and begun, row by row, in files of this daemon.

:mod:`~controller.journal.term_journal` is what handlers see, :mod:`~controller.journal.journal` the queue and the
thread that writes, :mod:`~controller.journal.segments` the files, :mod:`~controller.journal.reader` reads them again.
"""
