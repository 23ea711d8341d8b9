"""Writing AnnData as HDF5 so that a full disk is an error and not the end of the process."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["write_hdf5"]


def write_hdf5(adata: AnnData, path: str | Path, *, compression: str | None = None) -> None:
    """Write an AnnData as ``.h5ad``.

    Raises
    ------
    OSError
        Where the disk is full or fails.
    """
    import h5py
    from anndata.io import write_elem

    options = {} if compression is None else {"compression": compression}
    with Path(path).open("r+b" if Path(path).exists() else "w+b", buffering=0) as raw:
        raw.truncate(0)
        sink = _Sink(raw)
        try:
            with h5py.File(sink, "w") as store:
                write_elem(store, "/", adata, dataset_kwargs=options)
        finally:
            # Whatever HDF5 made of it, the disk's own error comes first.
            if sink.error is not None:
                raise sink.error


class _Sink(io.RawIOBase):
    """What HDF5 writes to: a file whose errors are kept for later.

    HDF5 (1.14) is left broken by a file that cannot be flushed when it is closed, as on a full disk, and the process
    then dies by a segmentation fault when it closes its next file, which may be another run's. So it never hears of an
    error: from the first one on, what it writes is held in memory, where it may read it again until it is closed.
    """

    def __init__(self, raw: io.FileIO) -> None:
        super().__init__()
        self.error: OSError | None = None
        self._raw = raw
        self._held: list[tuple[int, bytes]] = []
        self._at = 0
        self._size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self.error is None:
            try:
                self._raw.seek(self._at)
                written = 0
                while written < len(view):  # a raw file may take less than it is given
                    written += self._raw.write(view[written:]) or 0
            except OSError as error:
                self.error = error
        if self.error is not None:
            self._held.append((self._at, bytes(view)))
        self._at += len(view)
        self._size = max(self._size, self._at)
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        self._raw.seek(self._at)
        self._raw.readinto(view)
        for start, data in self._held:
            low, high = max(start, self._at), min(start + len(data), self._at + len(view))
            if low < high:
                view[low - self._at : high - self._at] = data[low - start : high - start]
        self._at += len(view)
        return len(view)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None, /) -> int:
        self._size = self._at if size is None else size
        try:
            self._raw.truncate(self._size)
        except OSError as error:
            self.error = self.error or error
        return self._size

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
