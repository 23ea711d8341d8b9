"""Published figures, to stand beside ours: never reproduced here, and marked so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

import pandas as pd
import yaml

__all__ = ["MARK", "Published", "published"]

MARK = "published, not reproduced here"


@dataclass(frozen=True)
class Published:
    """A table of somebody's figures.

    Parameters
    ----------
    title, source
        What they are and where they stand.
    table
        Models x columns.
    """

    title: str
    source: str
    table: pd.DataFrame


def published(data: Iterable[str]) -> list[Published]:
    """Return the tables that are about some data sets, from ``conf/published/``: no other runs stand beside them."""
    wanted = set(data)
    found = []
    for item in sorted(files("pertbase.conf").joinpath("published").iterdir(), key=lambda entry: entry.name):
        if not item.name.endswith(".yaml"):
            continue
        about = yaml.safe_load(item.read_text(encoding="utf-8"))
        if about["data"] in wanted:
            table = pd.DataFrame.from_dict(about["rows"], orient="index", columns=about["columns"])
            found.append(Published(about["title"], about["source"], table.rename_axis("model")))
    return found
