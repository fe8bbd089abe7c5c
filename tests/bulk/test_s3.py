"""Input and output in an object store that speaks S3. Runs where s3fs and moto[server] are installed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import bulk, finish, kill, start, wait_for

from latentmt.bulk.store import Folder, find_files
from latentmt.data.numbers import Sizes, write_numbers

s3fs = pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")

ARGUMENTS = ("--actors", "2", "--rows-per-part", "30")


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """An empty bucket, `s3://bucket`, that this process and those that it starts reach."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    settings |= {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        files = s3fs.S3FileSystem(use_listings_cache=False)
        files.mkdir("bucket")
        yield files
    server.stop()


def content(store: Any, folder: str) -> dict[str, bytes]:
    return {path.rpartition("/")[2]: store.cat_file(path) for path in store.find(f"bucket/{folder}")}


def test_files_are_put_read_and_listed(store: Any) -> None:
    folder = Folder("s3://bucket/a/out")
    folder.make()
    assert (folder.sizes(), folder.read("a")) == ({}, None)
    for text in (b"eins", b"zwei!"):
        folder.put("a", text)
        assert (folder.read("a"), folder.sizes()) == (text, {"a": len(text)})
    versions = []
    for text in (b"alt\n", b"neu\n"):
        store.pipe_file("bucket/a/in/a.txt", text)
        (file,) = find_files("s3://bucket/a/in", "s3://bucket/a/out")
        with file.open() as (stored, _):
            assert (file.name, stored.read()) == ("a.txt", text)
        versions.append(file.version)
    assert versions[0] != versions[1]


def test_a_killed_job_goes_on_and_ends_with_the_same_bytes(tmp_path: Path, store: Any) -> None:
    write_numbers(tmp_path, Sizes(train=900, dev=1, test=1), seed=1)
    source = (tmp_path / "train.de").rename(tmp_path / "train.txt")
    store.put_file(str(source), "bucket/in/train.txt")
    with start("s3://bucket/in", "s3://bucket/out", *ARGUMENTS) as job:
        wait_for(lambda: len(store.find("bucket/out")) >= 6)
        kill(job.pid)
        assert finish(job)[0] == -9
    assert not json.loads(store.cat_file("bucket/out/manifest.json"))["complete"]
    bulk("s3://bucket/in", "s3://bucket/out", *ARGUMENTS)
    bulk("s3://bucket/in", "s3://bucket/undisturbed", *ARGUMENTS)
    bulk(source, tmp_path / "disk", *ARGUMENTS)
    written = content(store, "out")
    assert written == content(store, "undisturbed")
    parts = {name: text for name, text in written.items() if name.startswith("part-")}
    assert parts == {path.name: path.read_bytes() for path in (tmp_path / "disk").glob("part-*")}
    assert len(parts) == 30
