"""Files from the web, from a server on this machine: whole, checked, continued where they were cut."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import yaml

from pertbase.errors import InputError, PertbaseError
from pertbase.folds import Screen, data, data_names, load_data
from pertbase.folds._download import Origin, fetch, origin_record, verify
from pertbase.folds._prepare._options import parse_options

CONTENT = np.random.default_rng(0).bytes(3_000_000)
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()}"
FETCHED = ("norman", "adamson", "replogle_k562", "replogle_rpe1", "sciplex3")


class Server(ThreadingHTTPServer):
    """Serves bytes at any path, and can be told to misbehave."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.version, self.ranges = CONTENT, "one", True
        self.cuts: list[int] = []  # how many bytes each of the next answers sends before the connection ends
        self.failures: list[int] = []  # status of each of the next answers
        self.pause = 0.0
        self.asked: list[str | None] = []  # the Range of every request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.h5ad"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        self.close_connection = True
        if server.failures:
            self.send_response(server.failures.pop(0))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted and server.ranges else 0
        total = len(server.content)
        if start >= total:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{total}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("ETag", server.version)
        self.send_header("Content-Length", str(total - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.end_headers()
        end = start + server.cuts.pop(0) if server.cuts else total
        for at in range(start, min(end, total), 50_000):
            self.wfile.write(server.content[at : min(at + 50_000, end)])
            time.sleep(server.pause)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def left(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir() if not item.name.endswith(".lock"))


def test_file_is_fetched_once_and_said_on_whose_terms(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = Origin.of(url=server.url, checksum=[SHA256, MD5], size=len(CONTENT), licence="CC BY", citation="A et al.")
    target = tmp_path / "new" / "file.h5ad"
    assert fetch(origin, target).read_bytes() == CONTENT
    assert left(target.parent) == ["file.h5ad", "file.h5ad.origin.json"]
    told = capsys.readouterr().err
    for part in (server.url, str(target), "licence: CC BY", "please cite: A et al."):
        assert part in told
    fetch(origin, target)
    assert server.asked == [None]
    assert capsys.readouterr().err == ""
    kept = origin_record(target)
    assert kept is not None
    assert (kept["url"], f"sha256:{kept['sha256']}", kept["size"]) == (server.url, SHA256, len(CONTENT))


def test_cut_connection_goes_on_where_it_ended(server: Server, tmp_path: Path) -> None:
    server.cuts = [400_000, 1_000_000]
    assert fetch(Origin.of(url=server.url, checksum=SHA256), tmp_path / "f", pause=0.01).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=400000-", "bytes=1400000-"]


def test_later_call_goes_on_where_an_earlier_one_gave_up(server: Server, tmp_path: Path) -> None:
    server.cuts = [700_000]
    server.failures = []
    origin = Origin.of(url=server.url, checksum=SHA256)
    with pytest.raises(PertbaseError, match="ended after 700,000 of 3,000,000 bytes") as caught:
        fetch(origin, tmp_path / "f", attempts=1, pause=0.01)
    for part in (server.url, str(tmp_path / "f"), "goes on from the 700,000 bytes", "PERTBASE_DATA"):
        assert part in str(caught.value)
    (part_file,) = left(tmp_path)
    assert part_file.startswith("f.")
    assert part_file.endswith(".part")
    assert fetch(origin, tmp_path / "f").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=700000-"]
    assert left(tmp_path) == ["f", "f.origin.json"]


def test_server_without_ranges_sends_all_of_it_again(server: Server, tmp_path: Path) -> None:
    server.cuts, server.ranges = [400_000], False
    assert fetch(Origin.of(url=server.url, checksum=SHA256), tmp_path / "f", pause=0.01).read_bytes() == CONTENT


def test_half_of_one_version_is_never_joined_to_half_of_another(server: Server, tmp_path: Path) -> None:
    server.cuts = [400_000]
    origin = Origin.of(url=server.url)  # no checksum would tell
    with pytest.raises(PertbaseError):
        fetch(origin, tmp_path / "f", attempts=1)
    server.content, server.version = CONTENT[::-1], "two"
    assert fetch(origin, tmp_path / "f", pause=0.01).read_bytes() == CONTENT[::-1]
    assert left(tmp_path) == ["f", "f.origin.json"]


def test_whole_part_of_a_process_that_died_before_its_end_is_used(server: Server, tmp_path: Path) -> None:
    origin = Origin.of(url=server.url, checksum=SHA256, size=len(CONTENT))
    (tmp_path / "f.0123abcd.part").write_bytes(CONTENT)
    assert fetch(origin, tmp_path / "f", pause=0.01).read_bytes() == CONTENT
    assert server.asked == ["bytes=3000000-"]


@pytest.mark.parametrize("checksum", [SHA256[:-4] + "beef", MD5[:-4] + "beef"])
def test_wrong_checksum_leaves_nothing_under_the_name(server: Server, tmp_path: Path, checksum: str) -> None:
    with pytest.raises(InputError, match="is not the file it should be") as caught:
        fetch(Origin.of(url=server.url, checksum=[checksum]), tmp_path / "f")
    assert checksum in str(caught.value)
    assert left(tmp_path) == []


def test_other_size_is_refused_before_anything_is_fetched(server: Server, tmp_path: Path) -> None:
    with pytest.raises(PertbaseError, match="offered with 3,000,000 bytes, and the file wanted has 7"):
        fetch(Origin.of(url=server.url, size=7), tmp_path / "f")
    assert left(tmp_path) == []


def test_busy_server_is_asked_again_and_an_absent_file_is_not(server: Server, tmp_path: Path) -> None:
    server.failures = [503, 429]
    fetch(Origin.of(url=server.url, checksum=SHA256), tmp_path / "f", pause=0.01)
    assert len(server.asked) == 3
    server.failures = [404]
    with pytest.raises(PertbaseError, match="HTTP 404"):
        fetch(Origin.of(url=server.url), tmp_path / "g", pause=0.01)
    assert len(server.asked) == 4


def test_first_copy_without_a_checksum_is_trusted_and_asked_for_ever_after(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = Origin.of(url=server.url)
    target = fetch(origin, tmp_path / "f")
    assert f"this copy is trusted: {SHA256}" in capsys.readouterr().err
    assert verify(target, origin) == SHA256.removeprefix("sha256:")
    target.write_bytes(b"something else")
    with pytest.raises(InputError, match=r"Delete it and f\.origin\.json") as caught:
        fetch(origin, target)
    assert SHA256 in str(caught.value)
    assert target.read_bytes() == b"something else"
    target.unlink()
    server.content = b"replaced"
    with pytest.raises(InputError, match=r"thrown away.*delete f\.origin\.json to trust the new one"):
        fetch(origin, target)
    assert left(tmp_path) == ["f.origin.json"]


def test_file_laid_by_hand_has_to_fit_too(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    fetch(Origin.of(url=server.url, checksum=MD5), tmp_path / "f")
    (tmp_path / "g").write_bytes(b"another")
    with pytest.raises(InputError, match=r"data=h5ad data\.path=FILE"):
        fetch(Origin.of(url=server.url, checksum=MD5), tmp_path / "g")
    assert server.asked == []


def test_unreachable_server_names_address_place_and_remedy(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/file.h5ad"
    with pytest.raises(PertbaseError, match="could not be fetched") as caught:
        fetch(Origin.of(url=url), tmp_path / "f", attempts=2, pause=0.01)
    for part in (url, str(tmp_path / "f"), "Check the connection", "elsewhere"):
        assert part in str(caught.value)


def test_name_that_cannot_be_resolved_is_not_asked_again(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(PertbaseError, match="could not be fetched"):
        fetch(Origin.of(url="https://nowhere.invalid/file"), tmp_path / "f", pause=30)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"url": "ftp://x/y"}, "fetched"),
        ({"checksum": "sha256:12"}, "checksum"),
        ({"checksum": "crc:" + "0" * 32}, "checksum"),
    ],
)
def test_origin_that_cannot_be_is_refused(values: dict[str, str], match: str) -> None:
    with pytest.raises(InputError, match=match):
        Origin.of(**values)


def test_two_at_once_fetch_it_once(server: Server, tmp_path: Path) -> None:
    server.pause = 0.002
    origin = Origin.of(url=server.url, checksum=SHA256)
    threads = [threading.Thread(target=fetch, args=(origin, tmp_path / "f")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert server.asked == [None]


def test_killed_process_leaves_a_part_only_and_the_next_goes_on(server: Server, tmp_path: Path) -> None:
    server.pause = 0.05
    script = (
        "import sys; from pertbase.folds._download import Origin, fetch; fetch(Origin.of(url=sys.argv[1]), sys.argv[2])"
    )
    target = tmp_path / "f"
    process = subprocess.Popen([sys.executable, "-c", script, server.url, str(target)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not any(part.stat().st_size >= 1_000_000 for part in tmp_path.glob("*.part")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    (part,) = left(tmp_path)
    assert part.endswith(".part")
    have = (tmp_path / part).stat().st_size
    server.pause = 0.0
    assert fetch(Origin.of(url=server.url, checksum=SHA256), target).read_bytes() == CONTENT
    assert server.asked[-1] == f"bytes={have}-"


# -- as a data set


@pytest.fixture
def served_screen(server: Server, tmp_path: Path) -> dict[str, Any]:
    """A configuration such as ours, of an scPerturb-like file that the server has."""
    obs = pd.DataFrame(
        {"perturbation": ["control", "A", "A_B"] * 8, "perturbation_type": "CRISPR", "nperts": [0, 1, 2] * 8}
    )
    values = np.random.default_rng(0).poisson(3, (24, 5)).astype(np.float32) + 1
    path = tmp_path / "made.h5ad"
    ad.AnnData(values, obs.set_axis([f"c{i}" for i in range(24)]), pd.DataFrame(index=list("ABCDE"))).write_h5ad(path)
    server.content = path.read_bytes()
    return {
        "_target_": "pertbase.folds.load_h5ad",
        "name": "served",
        "path": "scperturb/made.h5ad",
        "url": server.url,
        "checksum": [f"sha256:{hashlib.sha256(server.content).hexdigest()}"],
        "mechanism": "CRISPRa",
        "context_value": "K562",
    }


def test_data_set_is_looked_for_then_fetched_into_the_data_folder(
    served_screen: dict[str, Any], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERTBASE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    screen = load_data(served_screen)
    assert isinstance(screen, Screen)
    assert set(screen.perturbations) == {"CRISPRa:A", "CRISPRa:A+B"}
    assert (tmp_path / "data" / "scperturb" / "made.h5ad").exists()
    assert not (tmp_path / "cache").exists()
    load_data(served_screen)
    assert len(server.asked) == 1


def test_data_folder_that_is_a_file_leaves_the_cache(
    served_screen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERTBASE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load_data(served_screen)
    assert (tmp_path / "cache" / "pertbase" / "scperturb" / "made.h5ad").exists()


@pytest.mark.parametrize("name", FETCHED)
def test_shipped_origins_are_pinned_and_their_options_can_be_read(name: str) -> None:
    config = yaml.safe_load(files("pertbase.conf").joinpath("data", f"{name}.yaml").read_text(encoding="utf-8"))
    origin = Origin.of(**{key: config.pop(key) for key in ("url", "checksum", "size", "licence", "citation")})
    assert any(text.startswith("sha256:") for text in origin.checksum)
    assert origin.size is not None
    assert origin.licence
    assert "doi:" in origin.citation
    assert Path(config["path"]).name in origin.url
    given = {key: value for key, value in config.items() if key not in ("_target_", "name", "path", "source")}
    assert parse_options(given).dialect == "scperturb"
    assert name in data_names()


def test_wrong_copy_of_a_shipped_data_set_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scperturb" / "NormanWeissman2019_filtered.h5ad"
    path.parent.mkdir()
    path.write_bytes(b"another release")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERTBASE_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"is not the file it should be.*sha256:efde6f53"):
        data("norman")
