"""Process a folder or bucket of recordings on a Ray cluster, into Parquet.

`run.backfill` drives it; `source` lists recordings, `output` tracks finished ones, `rows` builds a row per recording,
`actors` (with `run` the only Ray imports here) holds the engines.
"""
