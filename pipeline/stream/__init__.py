"""Streams journals: a source of files that are complete, batches of rows, and a folder or a table that takes each once.

:mod:`pipeline.stream.source` makes rows of files, :mod:`pipeline.stream.query` runs batches of any such source, and
:mod:`pipeline.stream.bronze` or :mod:`pipeline.stream.delta` keeps them. A source gives rows with the columns of
:data:`pipeline.stream.batch.STREAMED`.
"""
