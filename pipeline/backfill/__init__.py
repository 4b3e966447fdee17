"""A folder or a bucket of recordings through the pipeline, on the machines of a cluster, into Parquet.

`run.backfill` drives it; `source` lists recordings, `output` knows what is done, `rows` makes a row of a recording,
`actors` (with `run` the only Ray imports here) has the engines.
"""
