"""What a report shows, as tables of text: for a terminal and as Markdown."""

from __future__ import annotations

import math

import pandas as pd

from pertbase.folds import OUTCOMES
from pertbase.runs._reports._finetuned import finetuned_sections
from pertbase.runs._reports._language import language_sections
from pertbase.runs._reports._published import MARK, published
from pertbase.runs._reports._reasons import run_sections
from pertbase.runs._reports._report import CEILING, MAIN, FoldTable, Report, marked
from pertbase.runs._reports._section import MISSING, Section, render
from pertbase.runs._reports._terms import TERMS, UNANSWERED, adapters_told, legend

__all__ = ["Section", "render", "sections"]

PAIRWISE = "pairwise r (measured)"
FLAGGED = (
    "* thresholds could not be fitted on held-out outcomes: fixed ones are used, and such a row stands below those "
    "with fitted ones"
)


# Of a fold's table, what a narrow terminal does without, the first to go first.
_OPTIONAL = (
    PAIRWISE, "supported BA", "ambiguous", "macro F1", "coverage", UNANSWERED, "AUROC direction", "AUROC called",
    "BA prior_matched", "accuracy", "BA rank_test", "BA fixed",
)  # fmt: skip


def sections(
    report: Report, *, compare: tuple[str, str] | None = None, shortcuts: bool = False, adapter: str = MAIN
) -> list[Section]:
    """Return what a report shows: a table a fold, the means, the published figures; or a comparison alone."""
    if compare:
        return [_difference_section(report, compare, adapter)]
    # What columns mean is told where they stand first, and not again below every fold.
    found = [_fold_section(table, adapter, told=number == 0) for number, table in enumerate(report.folds)]
    for data in report.data:
        found += _matrix_section(report, data, adapter)
        found += _means_section(report, data, adapter)
    found += language_sections(report, adapter)
    found += finetuned_sections(report, adapter)
    found += run_sections(report, adapter)
    if shortcuts:
        found += [section for table in report.folds if (section := _shortcut_section(report, table, adapter))]
    for figures in published(report.data):
        shown = figures.table.map(lambda value: f"{value:.3f}".rstrip("0") if isinstance(value, float) else str(value))
        found.append(Section(f"{figures.title} ({MARK})", shown.reset_index(), figures.told))
    return [*found, _terms(report)]


def _terms(report: Report) -> Section:
    """Return what the columns mean, in a line each."""
    used = {name for table in report.folds for run in table.runs for name in run.adapters}
    lines = [f"{word}: {meaning}" for word, meaning in {**TERMS, "adapters": adapters_told(used)}.items()]
    return Section("How to read", pd.DataFrame(), lines)


def _difference_section(report: Report, compare: tuple[str, str], adapter: str) -> Section:
    """Return paired differences, beside them those at fixed thresholds: thresholds fitted apart differ too."""
    columns = {}
    for name in dict.fromkeys((adapter, "fixed")):
        table = report.differences(*compare, adapter=name)
        columns[name] = [_interval(*row, signed=True) for row in table[["difference", "low", "high"]].to_numpy()]
    shown = table[["data", "fold", "seed"]].assign(**columns, note=table["note"])
    title = f"Paired difference in balanced accuracy, {compare[0]} - {compare[1]}"
    notes = [
        "intervals hold the fitted thresholds as they are: a difference that is not there when fixed may be theirs"
    ]
    return Section(title, shown, notes)


def _fold_section(table: FoldTable, adapter: str, *, told: bool) -> Section:
    rows = table.rows()
    scored = rows.loc[rows["baseline"] != CEILING]
    adapters = list(dict.fromkeys(scored["adapter"]))
    main = table.main_adapter(adapter)
    seeds = scored["seed"].nunique() > 1
    lines = []
    for (name, seed), group in scored.groupby(["baseline", "seed"], sort=True):
        # A run that was not answered with an adapter has dashes there.
        by_adapter = group.set_index("adapter").reindex(adapters)
        row = by_adapter.loc[main]
        flag = _flag(row)
        line = {"baseline": f"{name}, seed {int(seed)}" if seeds else str(name)}
        for one in adapters:
            cell = by_adapter.loc[one]
            # Intervals of the main column alone: three of them side by side leave no room to read.
            line[f"BA {one}"] = (
                _of(cell, "balanced_accuracy") + flag if one == main else _plain(cell["balanced_accuracy"])
            )
        line |= {
            "accuracy": _of(row, "accuracy"),
            "macro F1": _plain(row["macro_f1"]),
            "AUROC called": _plain(row["auroc_called"]),
            "AUROC direction": _plain(row["auroc_direction"]),
            "ambiguous": _plain(row["ambiguous"]),
            "coverage": _plain(row["coverage"]),
            UNANSWERED: _plain(row[UNANSWERED]),
            "supported BA": _plain(row["supported_balanced_accuracy"]),
            PAIRWISE: _beside(row["pairwise_predicted"], row["pairwise_measured"]),
        }
        value = row["balanced_accuracy"]
        # Fitted thresholds can cost balanced accuracy on test: a row without any is no better for being spared that.
        order = (bool(flag), math.inf if math.isnan(value) else -value) if table.ranks else (False, 0.0)
        lines.append((order, line))
    lines.sort(key=lambda pair: (pair[0], pair[1]["baseline"]))
    shown = pd.DataFrame([line for _, line in lines])
    if not (scored[UNANSWERED] > 0).any():
        shown = shown.drop(columns=UNANSWERED)
    if not table.ranks:
        return _unranked(table, shown, _fold_notes(table, scored, main), told=told)
    ceiling = rows.loc[rows["baseline"] == CEILING, "balanced_accuracy"]
    if len(ceiling):
        top = dict.fromkeys(shown.columns, MISSING) | {
            "baseline": CEILING,
            f"BA {main}": _plain(ceiling.iloc[0]),
        }
        shown = pd.concat([pd.DataFrame([top]), shown], ignore_index=True)
    meanings = legend([*shown.columns, *shown["baseline"]]) if told else []
    return Section(table.title, shown, [*meanings, *_fold_notes(table, scored, main)], optional=_OPTIONAL)


def _unranked(table: FoldTable, shown: pd.DataFrame, notes: list[str], *, told: bool) -> Section:
    """Return why a fold cannot rank baselines, what may help, and the columns that are not empty."""
    why = str(table.certificate["verdict"]).removeprefix("cannot rank baselines: ")
    lead = [f"Baselines are not ranked: {why}. What may help:", *table.remedies]
    empty = [name for name in shown.columns if (shown[name] == MISSING).all()]
    shown = shown.drop(columns=empty)
    return Section(table.title, shown, [*(legend(shown.columns) if told else []), *notes], lead, _OPTIONAL)


def _fold_notes(table: FoldTable, scored: pd.DataFrame, main: str) -> list[str]:
    certificate = table.certificate
    counts = certificate["questions"]["test"]
    told = ", ".join(f"{counts[name]:,} {name}" for name in OUTCOMES)
    notes = [f"fold {table.hash[:12]}; test: {told}, {counts['ambiguous']:,} ambiguous"]
    smallest = certificate.get("smallest_difference")
    if table.ranks:
        notes[0] += f"; {certificate['verdict']}"
    if smallest and table.ranks:
        notes[0] += f"; two baselines need a difference of about {smallest:.3f} to be told apart"
    ceiling = certificate.get("ceiling")
    if not ceiling:
        notes.append("no ceiling: the data set holds no cells")
    elif table.ranks:
        notes.append(
            f"the ceiling is a modelled replicate of the screen; between halves of its cells {ceiling['half']:.3f}"
        )
    if table.ranks:
        notes.append("intervals hold the fitted thresholds as they are; BA fixed has none to fit")
    if scored["pairwise_measured"].notna().any():
        notes.append(
            "pairwise r: mean correlation of predicted effects between perturbations of a context, beside that of the "
            "measured ones; near 1 where those are not, a baseline says the same of every perturbation"
        )
    notes += [f"same answers, counted by outcome: {', '.join(names)}" for names in _alike(table, main)]
    notes += table.unspoken(main)
    notes += table.laid()
    if scored.loc[scored["adapter"] == main, "flagged"].any():
        notes.append(FLAGGED)
    warned: dict[str, None] = {}
    for run in table.runs:
        for note in run.scores["adapters"].get(main, {}).get("notes", ()):
            warned.setdefault(note)
    return [*notes, *table.manifest["notes"], *warned]


def _matrix_section(report: Report, data: str, adapter: str) -> list[Section]:
    """Return balanced accuracies of a data set's folds side by side, where there are several."""
    tables = [table for table in report.folds if table.data == data]
    if len(tables) < 2:
        return []
    columns: dict[str, dict[str, str]] = {}
    for table in tables:
        rows = table.rows()
        rows = rows.loc[rows["adapter"].isin((adapter, ""))]
        seeds = rows["seed"].nunique() > 1
        columns[table.fold] = {
            _row_name(row, seeds): _of(row, "balanced_accuracy") + _flag(row)
            if row["baseline"] != CEILING
            else _plain(row["balanced_accuracy"])
            for _, row in rows.iterrows()
        }
    names = sorted({name for cells in columns.values() for name in cells}, key=lambda name: (name != CEILING, name))
    shown = pd.DataFrame(
        {"baseline": names, **{fold: [cells.get(name, MISSING) for name in names] for fold, cells in columns.items()}}
    )
    simulated = any(table.simulated for table in tables)
    notes = (
        [FLAGGED.partition(", and")[0]]
        if any(text.endswith(" *") for cells in columns.values() for text in cells.values())
        else []
    )
    return [Section(f"{marked(data, simulated=simulated)}: balanced accuracy by fold, {adapter}", shown, notes)]


def _flag(row: pd.Series) -> str:
    """Return the star of a row whose thresholds are not fitted; of none where it was not answered so (NaN)."""
    return " *" if row["flagged"] == True else ""  # noqa: E712


def _row_name(row: pd.Series, seeds: bool) -> str:
    named = seeds and not math.isnan(row["seed"])
    return f"{row['baseline']}, seed {int(row['seed'])}" if named else str(row["baseline"])


def _alike(table: FoldTable, adapter: str) -> list[list[str]]:
    """Return baselines that cannot be told apart on a fold: their confusions are equal, mostly by construction."""
    found: dict[str, list[str]] = {}
    for run in table.runs:
        if adapter in run.adapters:
            found.setdefault(str(run.scores["adapters"][adapter]["confusion"]), []).append(str(run.config["name"]))
    return [names for names in found.values() if len(set(names)) > 1]


def _means_section(report: Report, data: str, adapter: str) -> list[Section]:
    table = report.means(data, adapter=adapter)
    # A mean over one fold is that fold's column once more.
    if table.empty or table["n_folds"].max() < 2:
        return []
    simulated = any(item.simulated for item in report.folds if item.data == data)
    cells = [
        _interval(row.balanced_accuracy, row.low, row.high) + (" *" if row.n_flagged else "")
        for row in table.itertuples()
    ]
    shown = pd.DataFrame({"baseline": table["baseline"], "mean BA": cells, "folds": table["n_folds"].astype(str)})
    if table["seed"].nunique() > 1:
        shown.insert(1, "seed", table["seed"].astype(str))
    title = f"{marked(data, simulated=simulated)}: mean balanced accuracy over folds, {adapter}"
    notes = ["intervals are joint over folds; compare rows that ran on the same folds only"]
    if table["n_flagged"].any():
        notes.append("* on some folds thresholds could not be fitted: fixed ones are used there")
    return [Section(title, shown, notes)]


def _shortcut_section(report: Report, table: FoldTable, adapter: str) -> Section | None:
    found = report.decomposition(table, adapter=adapter)
    if found.empty:
        return None
    shown = found.copy()
    for column in shown.columns:
        if shown[column].dtype.kind == "f":
            shown[column] = [_plain(value) for value in shown[column]]
    first = ["baseline"]
    shown = shown[[*first, *(name for name in shown.columns if name not in first)]].astype(str)
    return Section(f"{table.title}: what each baseline adds to shortcuts", shown)


def _of(row: pd.Series, name: str) -> str:
    return _interval(row[name], row[f"{name}_low"], row[f"{name}_high"])


def _plain(value: float) -> str:
    return MISSING if value is None or math.isnan(value) else f"{value:.3f}"


def _beside(value: float, truth: float) -> str:
    return f"{_plain(value)} ({_plain(truth)})" if not (math.isnan(value) and math.isnan(truth)) else MISSING


def _interval(value: float, low: float, high: float, *, signed: bool = False) -> str:
    if math.isnan(value):
        return MISSING
    form = "+.3f" if signed else ".3f"
    if math.isnan(low):
        return format(value, form)
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"
