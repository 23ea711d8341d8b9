"""An experiment beside the published table, as text."""

from __future__ import annotations

import math

import pandas as pd

from pertbase.runs._experiment import CPU
from pertbase.runs._reports._figures import Figure
from pertbase.runs._reports._published import MARK
from pertbase.runs._reports._report import marked
from pertbase.runs._reports._reproduction import Reproduction, Row
from pertbase.runs._reports._section import MISSING, Section

__all__ = ["reproduction_sections", "shown", "theirs", "told"]


def reproduction_sections(found: Reproduction) -> list[Section]:
    """Return the table, ours, theirs and the difference, and where every number of ours comes from."""
    title = marked(found.experiment.title, simulated=found.simulated)
    return [
        Section(f"{title} ({MARK}, beside ours)", _lines(found), told(found)),
        Section("Where ours come from", _origins(found), [] if found.figures else ["nothing of it was run"]),
    ]


def _lines(found: Reproduction) -> pd.DataFrame:
    lines = []
    for row in found.rows:
        if row.published:
            lines.append(_line(found, f"{row.label}, published", [theirs(row, name) for name in found.columns]))
        label = "· ours" + (f": {row.run}" if row.run else "") if row.published else f"{row.label}, not published here"
        lines.append(_line(found, label, [shown(row, name) for name in found.columns]))
        differences = [found.difference(row, name) for name in found.columns]
        if any(not math.isnan(value) for value in differences):
            lines.append(
                _line(found, "· difference", [f"{value:+.3f}".replace("+nan", MISSING) for value in differences])
            )
    return pd.DataFrame(lines)


def _line(found: Reproduction, label: str, cells: list[str]) -> dict[str, str]:
    return {"row": label, **dict(zip(found.columns, cells, strict=True))}


def theirs(row: Row, column: str) -> str:
    """Return a published figure with the decimals it has."""
    value = row.published.get(column, math.nan)
    return MISSING if math.isnan(value) else f"{value:.3f}".rstrip("0")


def shown(row: Row, column: str) -> str:
    """Return a figure of ours: with its interval, its spread over seeds, or why there is none."""
    figure = row.ours.get(column)
    if not isinstance(figure, Figure):
        # A published column that no score of ours stands in.
        return MISSING if figure is None else figure
    if math.isnan(figure.value):
        return MISSING
    if not math.isnan(figure.spread):
        return f"{figure.value:.3f} ± {figure.spread:.3f}"
    if math.isnan(figure.low):
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def told(found: Reproduction) -> list[str]:
    """Return what a reader must know beside the table, a line each."""
    experiment, table = found.experiment, found.experiment.table
    lines = list(found.published.told)
    lacking = [name for name in found.columns if table is None or name not in table.columns]
    if lacking:
        lines.append(f"no score of ours stands in {', '.join(lacking)}")
    lines += [] if table is None else table.notes
    lines += [f"{row.label}: {row.note}" for row in found.rows if row.note]
    for part in experiment.parts:
        left = dict.fromkeys(str(row.run) for row in found.rows if row.run and row.part == part and _left(row))
        if left:
            which = "" if part == CPU else f" part={part}"
            lines.append(f"not run: {', '.join(left)}; pertbase run -m experiment={experiment.name}{which}")
            if part in experiment.costs:
                lines.append(f"{'it' if part == CPU else f'part={part}'} takes {experiment.costs[part]}")
    lines += found.notes
    if any(figure.n_seeds > 1 for _, _, figure in found.figures):
        lines.append("±: standard deviation over seeds")
    if any(not math.isnan(figure.low) for _, _, figure in found.figures):
        lines.append("intervals are two-way, over target sets and readout genes, and of ours alone")
    return lines


def _left(row: Row) -> bool:
    return all(not isinstance(figure, Figure) for figure in row.ours.values())


def _origins(found: Reproduction) -> pd.DataFrame:
    runs = {str(run.folder): run for _, _, figure in found.figures for run in figure.runs}
    return pd.DataFrame(
        [
            {
                "run": str(run.config["name"]),
                "fold": f"{run.config['data_name']}/{run.config['fold_name']}",
                "seed": str(run.config["seed"]),
                "fold hash": str(run.config["fold_hash"])[:12],
                "folder": folder,
            }
            for folder, run in runs.items()
        ]
    )
