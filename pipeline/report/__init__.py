"""Reports what each stop of a broker cost whom: availability, elections, ISRs and reassignments from the journals.

Definitions are pure functions over rows and arrays: :mod:`~pipeline.report.terms` (clocks),
:mod:`~pipeline.report.stops`, :mod:`~pipeline.report.told`, :mod:`~pipeline.report.intervals` and
:mod:`~pipeline.report.replication`.
:mod:`~pipeline.report.bucket` applies them to a bucket of partitions, :mod:`~pipeline.report.merging` puts buckets
together, :mod:`~pipeline.report.page` makes the HTML, :mod:`~pipeline.report.job` runs all of it on Spark.
"""
