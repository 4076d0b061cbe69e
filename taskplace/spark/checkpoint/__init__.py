"""The checkpoint of a stream: its files, and the manifests that say which of them count.

<checkpoint>/
  epochs/0000000003               one file per driver: its declared topology and store layouts
  manifests/0000000012.json       batch 12 is committed; never overwritten
  changelog/<version>-<epoch>-<id>.segment   changes of several tasks, up to that version
  snapshots/<task>/<version>-<attempt>.arrow
  batches/0000000012/             attempts' reports, rows between subtopologies and lists of them, staged sink
                                  output, marks of cancelled rounds
  tick                            the number of the batch that has work without rows, if any
  spark/                          Spark's own checkpoint of the query, if taskplace starts the query
"""
