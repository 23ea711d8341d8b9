"""Files from the web: fetched once, taken up again where they were cut, checked before they get their name."""

from __future__ import annotations

import datetime
import hashlib
import http.client
import logging
import os
import re
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock

from pertbase._io import read_json, write_json
from pertbase.errors import InputError, PertbaseError

__all__ = ["Origin", "fetch", "origin_record", "verify"]

_LOGGER = logging.getLogger("pertbase")
_BLOCK = 1 << 20
_LENGTHS = {"md5": 32, "sha256": 64}
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_RANGE = re.compile(r"^bytes (\d+)-\d+/(\d+|\*)$")


@dataclass(frozen=True)
class Origin:
    """Where a file comes from, and how to know it.

    Parameters
    ----------
    url
        Its address, http or https; empty where it is only ever laid by hand.
    checksum
        ``sha256:HEX`` or ``md5:HEX``, one or several; all have to fit. Without one the first copy is trusted: its
        SHA-256 is kept beside it, said, and asked of it ever after.
    size
        In bytes; a server that offers another size is refused before anything is fetched.
    licence, citation
        Said once, when the file is fetched.
    """

    url: str = ""
    checksum: tuple[str, ...] = ()
    size: int | None = None
    licence: str = ""
    citation: str = ""

    def __post_init__(self) -> None:
        if self.url and urlsplit(self.url).scheme not in ("http", "https"):
            raise InputError("is not an address that can be fetched", key="url", value=self.url, remedy="use https")
        for text in self.checksum:
            algorithm, _, digest = text.partition(":")
            if len(digest) != _LENGTHS.get(algorithm, -1) or not re.fullmatch("[0-9a-f]+", digest):
                raise InputError("is not a checksum", key="checksum", value=text, remedy="write sha256:HEX or md5:HEX")

    @classmethod
    def of(cls, *, checksum: str | Iterable[str] | None = None, **values: Any) -> Origin:
        """Return the origin a configuration describes: one checksum, several, or none."""
        given = () if checksum is None else (checksum,) if isinstance(checksum, str) else tuple(checksum)
        return cls(checksum=tuple(str(text).strip().lower() for text in given), **values)


def fetch(origin: Origin, target: str | Path, *, attempts: int = 5, pause: float = 1.0, timeout: float = 30.0) -> Path:
    """Return ``target``, fetched from its origin unless it is there already; what is there is verified.

    The bytes go to ``NAME.TAG.part`` beside it, which a later call takes up where it ends, with HTTP's Range, as long
    as the server still offers the same version (TAG); under its own name the file is whole and fits its checksum.
    Two processes asking at once fetch it once.

    Parameters
    ----------
    origin
        Address, checksum and size.
    target
        Where it is to lie.
    attempts
        How often in a row a connection may bring nothing before it is given up.
    pause
        Seconds before the second attempt; doubled each time.
    timeout
        Seconds without a byte after which a connection counts as cut.

    Raises
    ------
    PertbaseError
        Where it cannot be fetched, is of another size, does not fit its checksum, or the disk is too small. The
        message names the address, the place and what to do.
    """
    target = Path(target)
    _make_folder(target.parent)
    with FileLock(target.parent / f".{target.name}.lock"):
        if not target.exists():
            part = _Transfer(origin, target, timeout).run(attempts=attempts, pause=pause)
            _accept(origin, part, target)
            return target
    verify(target, origin)
    return target


def verify(path: str | Path, origin: Origin) -> str:
    """Return a file's SHA-256 once it fits what is known of it: the pinned checksums, else the one kept beside it.

    Raises
    ------
    InputError
        Where it does not fit.
    """
    path = Path(path)
    pinned = [text for text in origin.checksum if text.startswith("sha256:")] or list(origin.checksum)
    kept = origin_record(path)
    wanted = pinned or ([f"sha256:{kept['sha256']}"] if kept else [])
    found = _digests(path, {"sha256", *(text.partition(":")[0] for text in wanted)})
    _compare(wanted, found, path, origin, _remedy_where_it_lies(path, origin, pinned=bool(pinned)))
    if not wanted:
        _trust(path, found["sha256"], origin)
    return found["sha256"]


def origin_record(path: str | Path) -> dict[str, Any] | None:
    """Return what was kept of a file when it was fetched (url, sha256, size, fetched, licence, citation), or None."""
    beside = _record(Path(path))
    return dict(read_json(beside)) if beside.exists() else None


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.origin.json")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PertbaseError(
            f"the folder cannot be made ({error.strerror})",
            file=folder,
            remedy="set PERTBASE_DATA to a folder that can be written",
        ) from error


def _digests(path: Path, algorithms: Iterable[str]) -> dict[str, str]:
    digests = {name: hashlib.new(name, usedforsecurity=False) for name in sorted(algorithms)}
    with path.open("rb") as handle:
        while block := handle.read(_BLOCK):
            for digest in digests.values():
                digest.update(block)
    return {name: digest.hexdigest() for name, digest in digests.items()}


def _compare(wanted: Iterable[str], found: dict[str, str], path: Path, origin: Origin, remedy: str) -> None:
    for text in wanted:
        algorithm, _, digest = text.partition(":")
        if found[algorithm] != digest:
            raise InputError(
                f"is not the file it should be: its checksum is not {text}"
                + (f", which is that of {origin.url}" if origin.url else ""),
                file=path,
                key="checksum",
                value=f"{algorithm}:{found[algorithm]}",
                remedy=remedy,
            )


def _remedy_where_it_lies(path: Path, origin: Origin, *, pinned: bool) -> str:
    again = f"delete it{'' if pinned else f' and {_record(path).name}'} and run this again to fetch it anew"
    own = "to use a file of your own, say data=h5ad data.path=FILE"
    return f"{again}; {own}" if origin.url else own


def _accept(origin: Origin, part: Path, target: Path) -> None:
    """Give a fetched file its name, or throw it away."""
    kept = origin_record(target)
    # Of a file that was trusted once and deleted since, the same is wanted again.
    wanted = origin.checksum or ((f"sha256:{kept['sha256']}",) if kept else ())
    found = _digests(part, {"sha256", *(text.partition(":")[0] for text in wanted)})
    remedy = (
        "what arrived was thrown away: run this again; where it stays so, ask whoever keeps the file whether it was "
    )
    remedy += "replaced" + ("" if origin.checksum else f", and delete {_record(target).name} to trust the new one")
    try:
        _compare(wanted, found, target, origin, remedy)
    except InputError:
        part.unlink()
        raise
    os.replace(part, target)
    if wanted:
        _keep_record(target, found["sha256"], origin)
    else:
        _trust(target, found["sha256"], origin)
    for text in (f"licence: {origin.licence}" if origin.licence else "", _cite(origin)):
        if text:
            _say(f"  {text}")


def _cite(origin: Origin) -> str:
    return f"please cite: {' '.join(origin.citation.split())}" if origin.citation else ""


def _trust(path: Path, sha256: str, origin: Origin) -> None:
    """Keep the checksum of a file nobody has published one for, and say so."""
    kept = _keep_record(path, sha256, origin)
    where = f"kept in {_record(path).name} and asked of it from now on" if kept else "its folder cannot be written"
    _say(f"{path.name}: no published checksum, so this copy is trusted: sha256:{sha256} ({where})")


def _keep_record(path: Path, sha256: str, origin: Origin) -> bool:
    about = {
        "url": origin.url,
        "sha256": sha256,
        "size": path.stat().st_size,
        "fetched": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "licence": origin.licence,
        "citation": " ".join(origin.citation.split()),
    }
    try:
        write_json(_record(path), about)
    except PertbaseError as error:
        _LOGGER.warning("%s", error)
        return False
    return True


def _say(text: str) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)


class _Cut(Exception):
    """A connection that ended early, or a server that is busy; ``wait`` is what it asked for, in seconds."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class _Transfer:
    """One file on its way into its ``.part``."""

    def __init__(self, origin: Origin, target: Path, timeout: float) -> None:
        self.origin, self.target, self.timeout = origin, target, timeout

    def run(self, *, attempts: int, pause: float) -> Path:
        """Return the whole ``.part``."""
        _say(f"fetching {self.origin.url}\n      to {self.target}")
        failed = 0
        while True:
            before = self._have()
            try:
                return self._receive()
            except _Cut as cut:
                # A connection that is cut again and again still gets there: only those that bring nothing count.
                failed = 1 if self._have() > before else failed + 1
                if failed >= attempts:
                    raise self._error(f"could not be fetched ({cut})") from cut
                _LOGGER.info("%s: %s; trying again", self.target.name, cut)
                time.sleep(max(cut.wait, pause * 2 ** (failed - 1)))
            except OSError as error:
                raise self._error(f"could not be written ({error.strerror or error})") from error

    def _part(self) -> Path | None:
        parts = sorted(self.target.parent.glob(f"{_escape(self.target.name)}.*.part"))
        for stale in parts[:-1]:
            stale.unlink()
        return parts[-1] if parts else None

    def _have(self) -> int:
        part = self._part()
        return part.stat().st_size if part else 0

    def _receive(self) -> Path:
        part = self._part()
        start = part.stat().st_size if part else 0
        headers = {"User-Agent": "pertbase", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            request = urllib.request.Request(self.origin.url, headers=headers)
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                return self._write(response, part, start)
        except urllib.error.HTTPError as error:
            if error.code == 416 and part is not None:
                return self._beyond_the_end(error, part, start)
            reason = f"HTTP {error.code} {error.reason}"
            if error.code not in _PASSING:
                raise self._error(f"could not be fetched ({reason})") from error
            raise _Cut(reason, _seconds(error.headers.get("Retry-After"))) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, socket.gaierror):
                # No network, or a name that does not exist: waiting seconds will not help.
                raise self._error(f"could not be fetched ({error.reason})") from error
            raise _Cut(str(error.reason)) from error
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            raise _Cut(str(error) or type(error).__name__) from error

    def _beyond_the_end(self, error: urllib.error.HTTPError, part: Path, start: int) -> Path:
        """Nothing is left to be sent: either all of it is here, or what is here is of another version."""
        whole = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
        if whole and int(whole[1]) == start and self.origin.size in (None, start):
            return part
        part.unlink()
        raise _Cut("what was here is not of this version; starting anew") from error

    def _write(self, response: Any, part: Path | None, start: int) -> Path:
        range_ = _RANGE.match(response.headers.get("Content-Range", "")) if response.status == 206 else None
        length = response.headers.get("Content-Length")
        if range_ is not None:
            total = int(range_[2]) if range_[2] != "*" else None
        else:
            total = int(length) if length is not None else None
        self._check_size(total)
        tagged = self.target.with_name(f"{self.target.name}.{_tag(response.headers, total)}.part")
        resumed = part is not None and range_ is not None and int(range_[1]) == start and tagged == part
        if part is not None and not resumed:
            # The server sends all of it, or it is no longer the version that was begun.
            part.unlink()
            if range_ is not None:
                raise _Cut("the file was replaced meanwhile; starting anew")
        begin = start if resumed else 0
        self._check_room(tagged.parent, None if total is None else total - begin)
        end = self._pour(response, tagged, begin, total)
        if total is not None and end < total:
            raise _Cut(f"the connection ended after {end:,} of {total:,} bytes")
        return tagged

    def _pour(self, response: Any, part: Path, begin: int, total: int | None) -> int:
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        end = begin
        with part.open("ab" if begin else "wb") as handle, _progress(Progress, columns) as progress:
            task = progress.add_task(self.target.name, total=total, completed=begin)
            while block := response.read(_BLOCK):
                handle.write(block)
                end += len(block)
                progress.update(task, completed=end)
        return end

    def _check_size(self, total: int | None) -> None:
        if self.origin.size is not None and total is not None and total != self.origin.size:
            raise self._error(f"is offered with {total:,} bytes, and the file wanted has {self.origin.size:,}")

    def _check_room(self, folder: Path, needed: int | None) -> None:
        free = shutil.disk_usage(folder).free
        if needed is not None and needed > free:
            raise PertbaseError(
                f"has no room for {needed:,} more bytes",
                file=folder,
                value=free,
                remedy="set PERTBASE_DATA to a folder on a larger disk",
            )

    def _error(self, problem: str) -> PertbaseError:
        have = self._have()
        resume = f", which goes on from the {have:,} bytes that are here" if have else ""
        return PertbaseError(
            problem,
            file=self.target,
            key=self.origin.url,
            remedy=f"check the connection and run this again{resume}; or fetch it elsewhere and lay it at "
            f"{self.target}, or under the same path in the folder that PERTBASE_DATA names",
        )


def _progress(progress: Any, columns: tuple[Any, ...]) -> Any:
    """Return a bar on a terminal or in a notebook; a log file gets none."""
    from rich.console import Console

    console = Console(stderr=True)
    return progress(*columns, console=console, disable=not (console.is_terminal or console.is_jupyter), transient=True)


def _tag(headers: Any, total: int | None) -> str:
    """Return what tells one version of a file from another, as a few letters."""
    version = headers.get("ETag") or headers.get("Last-Modified") or str(total)
    return hashlib.sha256(version.encode()).hexdigest()[:8]


def _escape(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _seconds(text: str | None) -> float:
    # A server may also name a date; the pause of our own then has to do. No wait is longer than a minute.
    return min(float(text), 60.0) if text and text.isdigit() else 0.0
