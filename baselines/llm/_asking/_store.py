"""Responses on disk: appended, never changed, and found again by a hash of everything that could change them.

A folder holds segments ``00001.jsonl``, ``00002.jsonl``, ...; each asking writes one of its own. A line is
one response: its key, the question, the sample, the prompt, what came back and what it took. Lines of one batch are
written together, and a batch that a killed process left half-written is not read: it is asked again as a whole.
Failures go to ``failures.log`` and are never read. Files of other names are nobody's of ours, and are left alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args

from filelock import FileLock, Timeout

from pertbase._io import cut, plain, write_json
from pertbase.baselines.llm._clients._base import Finish, Request, Response
from pertbase.errors import InputError, PertbaseError

__all__ = ["ResponseStore", "store_folder"]

_Row = tuple[str, Request, Response]
_KEPT = tuple(item.name for item in fields(Response))
_FINISHES = get_args(Finish)
_SEGMENT = re.compile(r"\d{5,}\.jsonl")
_LOCKS = ".asking"
_log = logging.getLogger("pertbase.training")


def store_folder(root: Path, title: str, identity_hash: str) -> Path:
    """Return where the responses of a model are kept below a folder."""
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in title).strip(".-") or "model"
    return root / f"{cut(name, 80)}-{identity_hash[:8]}"


class ResponseStore:
    """The responses of one model.

    Parameters
    ----------
    folder
        Made where it is not there; None to hold them in memory alone.
    identity
        What is written beside the responses to say whose they are.

    Raises
    ------
    InputError
        Where a line, other than the last of a segment, cannot be read.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        self._identity = dict(identity)
        self._found: dict[str, Response] = {}
        self._segment: Any = None
        self._batch = 0
        self._sizes: dict[str, int] = {}
        self._refresh()

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def get(self, key: str) -> Response | None:
        """Return the response of a key, or None."""
        return self._found.get(key)

    def _refresh(self) -> None:
        """Read what was written since, by whomever."""
        if self.folder is None or not self.folder.is_dir():
            return
        for path in sorted(self.folder.iterdir()):
            if not _SEGMENT.fullmatch(path.name) or not path.is_file():
                continue
            try:
                size = path.stat().st_size
                if self._sizes.get(path.name) != size:
                    self._found.update(_read(path))
                    self._sizes[path.name] = size
            except OSError as error:
                raise InputError(
                    f"cannot be read ({error.strerror or error})", file=path,
                    remedy="make it readable, or move it away; its questions are asked again then",
                ) from error  # fmt: skip

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Keep others from asking the same at the same time: they wait, and find what is kept then.

        Parameters
        ----------
        what
            A hash of all that is asked. Who asks something else of the same model does not wait.
        """
        if self.folder is None:
            yield
            return
        lock = FileLock(self.folder / _LOCKS / f"{what[:16]}.lock")
        try:
            (self.folder / _LOCKS).mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                _log.info("another command asks the same; waiting for it (%s)", self.folder)
                lock.acquire()
        except OSError as error:
            raise _unkept(self.folder, error) from error
        try:
            self._refresh()
            yield
        finally:
            lock.release()

    def add(self, rows: Sequence[_Row], about: Mapping[str, Any]) -> None:
        """Write a batch of responses: all of it, or, if the process is killed, none.

        What is not final goes to the log of failures, and will be asked again.

        Parameters
        ----------
        rows
            Key, request and response.
        about
            What else a reader of the file wants to know: sampling, template.
        """
        kept = [(key, request, response) for key, request, response in rows if _settled(request.kind, response)]
        failed = [(key, request, response) for key, request, response in rows if not _settled(request.kind, response)]
        try:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._write(self.folder, kept, failed, about)
        except OSError as error:
            raise _unkept(self.folder, error) from error
        # Only once they are written.
        self._found.update({key: response for key, _, response in kept})

    def _write(self, folder: Path, kept: Sequence[_Row], failed: Sequence[_Row], about: Mapping[str, Any]) -> None:
        if kept:
            self._append(folder, [self._line(*row, about, batch=(self._batch, len(kept))) for row in kept])
            self._batch += 1
        if failed:
            with (folder / "failures.log").open("a", encoding="utf-8") as log:
                log.writelines(self._line(*row, about, batch=(0, 1)) for row in failed)

    @staticmethod
    def _line(
        key: str, request: Request, response: Response, about: Mapping[str, Any], *, batch: tuple[int, int]
    ) -> str:
        row = {"key": key, "batch": batch, "kind": request.kind, "question": request.question, "sample": request.sample}
        # The orders of the options differ in nothing else.
        row |= {**about, "prompt": request.prompts[0], "orders": len(request.prompts), **asdict(response)}
        return json.dumps(plain(row), ensure_ascii=False) + "\n"

    def _append(self, folder: Path, lines: Sequence[str]) -> None:
        if self._segment is None:
            self._segment = self._opened(folder)
        rest = memoryview("".join(lines).encode())
        try:
            while rest:
                rest = rest[self._segment.write(rest) :]
        except OSError:
            # Nothing is written after half a line.
            self._segment.close()
            self._segment = None
            raise

    def _opened(self, folder: Path) -> Any:
        if not (folder / "model.json").exists():
            write_json(folder / "model.json", self._identity)
        number = sum(_SEGMENT.fullmatch(path.name) is not None for path in folder.iterdir())
        while True:
            number += 1
            with contextlib.suppress(FileExistsError):
                return (folder / f"{number:05d}.jsonl").open("xb", buffering=0)

    def close(self) -> None:
        """Bring what was written onto the disk."""
        if self._segment is not None:
            os.fsync(self._segment.fileno())
            # What it holds is known: it need not be read again.
            self._sizes[Path(self._segment.name).name] = os.fstat(self._segment.fileno()).st_size
            self._segment.close()
            self._segment = None


def _unkept(folder: Path | None, error: OSError) -> PertbaseError:
    return PertbaseError(
        f"responses cannot be kept ({error.strerror or error})",
        file=folder,
        remedy="make room or choose another runs=FOLDER; what was written stays, and the same command goes on",
    )


def _settled(kind: str, response: Response) -> bool:
    """Return whether asking again would be in vain; where scores were asked for and none came, it would not."""
    unanswered = kind != "reply" and response.letters is None and response.finish in ("stop", "length")
    return response.final and not unanswered


def _read(path: Path) -> Iterator[tuple[str, Response]]:
    """Yield key and response of each line; a batch that is not whole is left out."""
    batch: list[tuple[str, str, Response]] = []
    number = -1
    with path.open("rb") as file:
        lines = file.read().split(b"\n")
    for place, line in enumerate(lines, start=1):
        if not line:
            continue
        last = place >= len(lines)  # no line end follows: the process was killed while it wrote
        try:
            row = json.loads(line)
            key, kind, (of, size) = str(row["key"]), str(row["kind"]), row["batch"]
            response = _response(row)
        except (ValueError, KeyError, TypeError) as error:
            if last:
                return
            raise InputError(
                f"cannot be read ({error})", file=path, key=f"line {place}",
                remedy="remove that line; the whole batch that it was asked in is asked again",
            ) from error  # fmt: skip
        if of != number:
            batch, number = [], of
        batch.append((key, kind, response))
        if len(batch) == size:
            yield from ((key, response) for key, kind, response in batch if _settled(kind, response))


def _response(row: Mapping[str, Any]) -> Response:
    values = {name: row.get(name, False) if name == "thought_begun" else row[name] for name in _KEPT}
    if not isinstance(values["text"], str) or values["finish"] not in _FINISHES:
        raise ValueError("its text is no text, or its finish is unknown")
    letters = values["letters"]
    if letters is not None:
        # JSON has no NaN: letters that were not seen are null.
        letters = tuple(tuple(math.nan if value is None else float(value) for value in row) for row in letters)
    return Response(**{**values, "letters": letters})
