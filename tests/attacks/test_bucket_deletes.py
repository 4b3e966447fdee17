"""Deletions of stored files in a bucket: a refused one is an error, and a file that exists is never taken for gone."""

import os
import subprocess
import sys

import httpx
import pytest

from tests import s3_server
from tests.paths import ROOT
from tests.s3_server import Bucket, Faults

pytestmark = pytest.mark.slow_attack

DELETE = """
import sys
import fsspec
from pipeline.errors import StorageError
from pipeline.fetch import storage

storage.MIN_AGE_SECONDS = -1.0
fs, folder = fsspec.core.url_to_fs("s3://here/recordings")
for line in sys.stdin:
    name = line.strip()
    if name == "list":
        print(len(fs.ls(folder)), flush=True)
        continue
    try:
        print(storage.delete(f"s3://here/recordings/{name}"), flush=True)
    except StorageError as error:
        print(error.message, flush=True)
"""


def test_a_file_is_deleted_whatever_was_listed_and_a_refusal_is_an_error() -> None:
    with s3_server.bucket("here") as bucket:
        path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{bucket.environment['PYTHONPATH']}"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        process = subprocess.Popen(
            [sys.executable, "-c", DELETE], env=environment | bucket.environment | path,
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

        def answer(line: str) -> str:
            assert process.stdin is not None and process.stdout is not None
            print(line, file=process.stdin, flush=True)
            return process.stdout.readline().strip()

        try:
            bucket.put("recordings/first", b"RIFF")
            assert answer("list") == "1"
            bucket.put("recordings/stored-by-another-process", b"RIFF")
            bucket.faults(Faults(down_after=-1))  # from now on
            assert answer("first").startswith("A stored recording could not be deleted (")
            assert answer("stored-by-another-process").startswith("A stored recording could not be deleted (")
            bucket.faults(Faults())
            assert exists(bucket, "first") and exists(bucket, "stored-by-another-process")
            assert answer("first") == answer("stored-by-another-process") == "True"
            assert not exists(bucket, "first") and not exists(bucket, "stored-by-another-process")
            assert answer("never-stored") == "True"
        finally:
            process.kill()
            process.wait(10)


def exists(bucket: Bucket, name: str) -> bool:
    listed = httpx.get(f"{bucket.url}/{bucket.name}?list-type=2&prefix=recordings/").raise_for_status()
    return f"<Key>recordings/{name}</Key>" in listed.text
