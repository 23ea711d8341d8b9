"""The part of the page that is about one fold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pertbase.folds import OUTCOMES, STATUSES
from pertbase.runs._html_table import (
    BADGE,
    Cell,
    Column,
    data_table,
    details,
    heat,
    heat_key,
    of_interval,
    of_number,
)
from pertbase.runs._markup import Markup, element, join, number
from pertbase.runs._report import CEILING, FoldTable, Report
from pertbase.runs._store import Run
from pertbase.runs._svg import COLOURS, Domain, Dot, Line, confusion_plot, dot_plot, scatter_plot

__all__ = ["FoldView", "compact"]

_POINTS_PER_OUTCOME = 150
_BEYOND = 0.995
SPLITS = ("train", "val", "test")


class FoldView:
    """One fold as HTML.

    Parameters
    ----------
    table
        Its runs.
    ident
        Unique on the page.
    adapter
        The adapter that plots and one-adapter tables show, where the fold has it.
    domain
        Of balanced accuracy in plots and heat maps; the same for all folds of a data set.
    """

    def __init__(self, table: FoldTable, *, ident: str, adapter: str, domain: Domain) -> None:
        self.table = table
        self.ident = ident
        self.domain = domain
        self.adapter = table.main_adapter(adapter)
        self.simulated = table.simulated
        rows = table.rows()
        self.rows = rows.loc[rows["baseline"] != CEILING]
        self.adapters = list(dict.fromkeys(self.rows["adapter"]))
        self.runs = self._in_order()

    def _in_order(self) -> list[Run]:
        """Return the runs, best first where the fold ranks them, else by name."""
        if not self.table.ranks:
            return list(self.table.runs)

        def place(run: Run) -> float:
            value = self.row(run)["balanced_accuracy"]
            return math.inf if math.isnan(value) else -float(value)

        return sorted(self.table.runs, key=place)

    def row(self, run: Run, adapter: str | None = None) -> pd.Series:
        """Return the scores of a run by one adapter; NaN throughout where it was not answered with it."""
        found = self.rows.loc[
            (self.rows["run"] == str(run.folder)) & (self.rows["adapter"] == (adapter or self.adapter))
        ]
        return found.iloc[0] if len(found) else pd.Series(math.nan, index=self.rows.columns, dtype=object)

    def scores(self, run: Run) -> dict[str, Any] | None:
        """Return what ``scores.json`` holds of the main adapter, or None where the run has none."""
        return run.scores["adapters"][self.adapter] if self.adapter in run.adapters else None

    @property
    def ceiling(self) -> float:
        """The corrected split-half ceiling; NaN where there is none or too few questions of a class."""
        ceiling = self.table.certificate.get("ceiling")
        value = ceiling["corrected"] if ceiling and self.table.ranks else None
        return math.nan if value is None else float(value)

    # -- the section ----------------------------------------------------------------------------------------

    def section(self, report: Report, *, shortcuts: bool) -> Markup:
        """Return the whole section."""
        plot = self._dots() if self.table.ranks else self._refused()
        return element(
            "section",
            element("h3", self.table.title, " ", BADGE if self.simulated else None),
            element("div", plot, self._certificate(), class_="pair"),
            self._score_table(),
            self._notes(),
            self._confusions(),
            self._scatters(),
            *(self._strata(kind) for kind in ("regime", "context")),
            self._per_outcome(),
            self._statuses(),
            self._shortcuts(report) if shortcuts else None,
            id=self.ident,
            class_="fold simulated" if self.simulated else "fold",
        )

    def _figure(self, caption: str, *children: Markup) -> Markup:
        badge = join(" ", BADGE) if self.simulated else None
        return element("figure", element("figcaption", caption, badge), *children)

    def _dots(self) -> Markup:
        rows = [(run, self.row(run)) for run in self.runs]
        dots = [
            Dot(
                self.table.label(run),
                row["balanced_accuracy"],
                row["balanced_accuracy_low"],
                row["balanced_accuracy_high"],
                row["flagged"] is True or row["flagged"] == True,  # noqa: E712  (numpy's, or NaN)
            )
            for run, row in rows
        ]
        lines = [Line(1 / 3, "chance")]
        if not math.isnan(self.ceiling):
            lines.append(Line(self.ceiling, f"ceiling {self.ceiling:.3f}", strong=True))
        smallest = self.table.certificate.get("smallest_difference")
        bar = (float(smallest), "smallest difference this fold can detect") if smallest else None
        plot = dot_plot(
            dots,
            ident=f"{self.ident}-dots",
            title=f"{self.table.title}: balanced accuracy of each baseline, {self.adapter}",
            axis=f"balanced accuracy, {self.adapter}",
            domain=self.domain,
            lines=lines,
            bar=bar,
            simulated=self.simulated,
        )
        return self._figure(f"Balanced accuracy with {self._level()} intervals", plot)

    def _level(self) -> str:
        levels = [scores["level"] for run in self.runs if (scores := self.scores(run))]
        return f"{levels[0]:.0%}" if levels else "95%"

    def _refused(self) -> Markup:
        return element(
            "div",
            element("p", element("strong", "Baselines are not ranked on this fold.")),
            element("p", f"The fold {self.table.certificate['verdict']}."),
            element("p", "The table below is in the order of names and cannot be sorted by a score."),
            class_="refused",
            role="note",
        )

    # -- certificate ----------------------------------------------------------------------------------------

    def _certificate(self) -> Markup:
        manifest, certificate = self.table.manifest, self.table.certificate
        outcomes = [*OUTCOMES, "ambiguous"]
        counts = data_table(
            [Column("split", numeric=False, sortable=False), *(Column(name, sortable=False) for name in outcomes)],
            [
                [
                    Cell(split),
                    *(
                        Cell(f"{certificate['questions'][split][name]:,}", certificate["questions"][split][name])
                        for name in outcomes
                    ),
                ]
                for split in SPLITS
            ],
            caption="Questions",
            simulated=self.simulated,
            class_="plain",
        )
        told = [
            ("verdict", certificate["verdict"]),
            ("disjoint", "proved on the files" if certificate["disjoint"] else "NOT disjoint"),
            ("smallest difference", number(certificate.get("smallest_difference"))),
            ("split-half ceiling", self._ceiling_told()),
            ("priors", ", ".join(f"{name} {number(value)}" for name, value in certificate["priors"].items())),
            ("mean power", number(certificate.get("power"))),
            ("target sets", _by_split(certificate["target_sets"])),
            ("conditions with calls", _by_split(certificate["conditions_with_calls"])),
            ("fold hash", element("code", self.table.hash)),
            ("data hash", element("code", manifest["data_hash"])),
            ("specification", element("code", compact(manifest["spec"]))),
        ]
        pairs = [join(element("dt", name), element("dd", value)) for name, value in told]
        heading = element("h4", "Certificate", " " if self.simulated else None, BADGE if self.simulated else None)
        return element("div", heading, counts, element("dl", *pairs), class_="card")

    def _ceiling_told(self) -> str:
        ceiling = self.table.certificate.get("ceiling")
        if not ceiling:
            return "none: the data set holds no cells"
        if not self.table.ranks:
            return "not given: too few questions of a class"
        return f"{number(ceiling['corrected'])} (half the cells {number(ceiling['half'])})"

    def _notes(self) -> Markup | None:
        notes: dict[str, None] = dict.fromkeys(self.table.manifest["notes"])
        flagged = [self.table.label(run) for run in self.runs if self.row(run)["flagged"] == True]  # noqa: E712
        if flagged:
            notes.setdefault(
                "* and hollow dots: thresholds could not be fitted on held-out outcomes, fixed ones are used: "
                + ", ".join(flagged)
            )
        for run in self.table.runs:
            for note in (self.scores(run) or {}).get("notes", ()):
                notes.setdefault(note)
        return element("ul", *(element("li", note) for note in notes), class_="notes") if notes else None

    # -- tables ---------------------------------------------------------------------------------------------

    def _score_table(self) -> Markup:
        ranks = self.table.ranks
        others = [name for name in self.adapters if name != self.adapter]

        def column(label: str, about: str) -> Column:
            return Column(label, about, sortable=ranks)

        columns = [
            Column("baseline", numeric=False),
            column(f"BA {self.adapter}", "balanced accuracy: mean recall of up, down and no_change, with its interval"),
            *(column(f"BA {name}", f"balanced accuracy with the adapter {name}") for name in others),
            column("accuracy", "share of questions answered right, with its interval"),
            column("macro F1", "plain mean of F1 over the three outcomes"),
            column("AUROC called", "up or down against no_change, mean within readout genes"),
            column("AUROC direction", "up against down, mean within readout genes"),
            column("ambiguous", "forced choice on ambiguous questions: does the higher score agree with the effect"),
            column("coverage", "share of questions the baseline can speak to"),
            column("supported BA", "balanced accuracy over those questions alone"),
        ]
        rows = [[self._name(run), *self._score_cells(run, others)] for run in self.runs]
        if not math.isnan(self.ceiling):
            dashes = [of_number(math.nan)] * (len(columns) - 2)
            rows.insert(0, [Cell(CEILING), of_number(self.ceiling), *dashes])
        return data_table(
            columns,
            rows,
            caption=f"{self.table.title}: scores on {self._asked():,} test questions, {self.adapter}",
            simulated=self.simulated,
            pinned=len(rows) - len(self.runs),
        )

    def _asked(self) -> int:
        return sum(self.table.certificate["questions"]["test"][name] for name in OUTCOMES)

    def _name(self, run: Run) -> Cell:
        return Cell(self.table.label(run))

    def _score_cells(self, run: Run, others: list[str]) -> list[Cell]:
        row = self.row(run)
        flag = "*" if row["flagged"] == True else ""  # noqa: E712

        def spread(name: str, flag: str = "") -> Cell:
            return of_interval(row[name], row[f"{name}_low"], row[f"{name}_high"], flag=flag)

        names = ("macro_f1", "auroc_called", "auroc_direction", "ambiguous", "coverage", "supported_balanced_accuracy")
        return [
            spread("balanced_accuracy", flag),
            *(of_number(self.row(run, name)["balanced_accuracy"]) for name in others),
            spread("accuracy"),
            *(of_number(row[name]) for name in names),
        ]

    def _per_outcome(self) -> Markup:
        measures = [(outcome, measure) for outcome in OUTCOMES for measure in ("precision", "recall", "f1")]
        sortable = self.table.ranks
        columns = [Column("baseline", numeric=False)]
        columns += [Column(f"{outcome} {measure}", sortable=sortable) for outcome, measure in measures]
        rows = []
        for run in self.runs:
            row = self.row(run)
            rows.append([self._name(run), *(of_number(row[f"{measure}_{outcome}"]) for outcome, measure in measures)])
        caption = f"{self.table.title}: precision, recall and F1 of each outcome, {self.adapter}"
        return details(
            "Precision and recall",
            data_table(columns, rows, caption=caption, simulated=self.simulated),
            simulated=self.simulated,
        )

    def _strata(self, kind: str) -> Markup | None:
        """Return balanced accuracy by regime or context, where there are several."""
        by_run = {run: scores[f"by_{kind}"] for run in self.runs if (scores := self.scores(run))}
        names = sorted({name for strata in by_run.values() for name in strata})
        if len(names) < 2 or not self.table.ranks:
            return None
        sizes = {name: next(strata[name]["n"] for strata in by_run.values() if name in strata) for name in names}
        columns = [Column("baseline", numeric=False)]
        columns += [Column(f"{name} ({sizes[name]:,})", f"{sizes[name]:,} questions") for name in names]
        rows = []
        for run, strata in by_run.items():
            cells = [heat(_float(strata.get(name, {}).get("balanced_accuracy")), self.domain) for name in names]
            rows.append([self._name(run), *cells])
        caption = f"{self.table.title}: balanced accuracy by {kind} (questions), {self.adapter}"
        table = data_table(columns, rows, caption=caption, simulated=self.simulated, class_="heat")
        return details(f"By {kind}", table, heat_key(self.domain), simulated=self.simulated)

    def _statuses(self) -> Markup:
        by_run = {run: scores for run in self.runs if (scores := self.scores(run))}
        seen = [name for name in STATUSES if any(scores["status"].get(name) for scores in by_run.values())]
        columns = [
            Column("baseline", numeric=False),
            Column("coverage", "share of answers that are not unsupported", sortable=self.table.ranks),
            *(Column(name, f"answers with status {name}", sortable=self.table.ranks) for name in seen),
            Column("without outcome", "answers without an outcome: wrong, and counted", sortable=self.table.ranks),
            Column("missing", "questions the answers leave out", sortable=self.table.ranks),
        ]
        rows = []
        for run, scores in by_run.items():
            counts = [
                *(scores["status"].get(name, 0) for name in seen),
                scores["n_without_outcome"],
                scores["n_missing"],
            ]
            cells = [Cell(f"{count:,}", count) for count in counts]
            rows.append([self._name(run), of_number(_float(scores["coverage"])), *cells])
        caption = f"{self.table.title}: answers by status, {self.adapter}"
        table = data_table(columns, rows, caption=caption, simulated=self.simulated)
        return details("Coverage and status", table, simulated=self.simulated)

    def _shortcuts(self, report: Report) -> Markup | None:
        found = report.decomposition(self.table, adapter=self.adapter)
        if found.empty:
            return None
        notes = [note for note in dict.fromkeys(found["note"]) if note]
        steps = list(dict.fromkeys(found["added"].dropna()))
        columns = [Column("baseline", numeric=False)]
        columns += [
            Column(
                "over nothing" if position == 0 else f"+ {step}", "gain in balanced accuracy over all shortcuts so far"
            )
            for position, step in enumerate(steps)
        ]
        rows = []
        for label, group in found.groupby("baseline", sort=False):
            gains = group.set_index("added")
            if gains.index.notna().any():
                cells = [
                    of_interval(*gains.loc[step, ["gain", "gain_low", "gain_high"]].astype(float), signed=True)
                    for step in steps
                ]
                rows.append([Cell(str(label)), *cells])
        caption = f"{self.table.title}: what each baseline adds to nested shortcuts, {self.adapter}"
        table = data_table(columns, rows, caption=caption, simulated=self.simulated) if rows else None
        about = element(
            "p",
            "Gain in balanced accuracy when a baseline's scores join those of the shortcuts named so far, left to right, in "
            "a cross-fitted regression. What remains in the last column is specific to the perturbation.",
            class_="hint",
        )
        told = element("ul", *(element("li", note) for note in notes), class_="notes") if notes else None
        return details("Shortcut decomposition", about, table, told, simulated=self.simulated)

    # -- small multiples ------------------------------------------------------------------------------------

    def _confusions(self) -> Markup | None:
        by_run = {run: scores["confusion"] for run in self.runs if (scores := self.scores(run))}
        if not by_run:
            return None
        unanswered = any(row[-1] for counts in by_run.values() for row in counts)
        figures = [
            self._figure(
                self.table.label(run),
                confusion_plot(
                    counts,
                    ident=f"{self.ident}-confusion-{position}",
                    title=f"{self.table.title}: confusion of {self.table.label(run)}, {self.adapter}",
                    unanswered=unanswered,
                    simulated=self.simulated,
                ),
            )
            for position, (run, counts) in enumerate(by_run.items())
        ]
        about = element("p", f"Share of each true outcome, and questions; {self.adapter}.", class_="hint")
        return details(
            "Confusion matrices", about, element("div", *figures, class_="multiples"), simulated=self.simulated
        )

    def _scatters(self) -> Markup | None:
        """Return predicted against measured effects of the runs that predicted effects, on the same questions."""
        runs = [run for run in self.runs if (run.folder / "effects.h5ad").is_file()]
        questions = self.table.truth.questions
        asked = questions.loc[questions["outcome"].isin(OUTCOMES) & questions["effect"].notna()]
        if not runs or asked.empty:
            return None
        # Ids are hashes, so that the first ones by id are drawn at random, and the same ones every time.
        drawn = asked.sort_values("id", kind="stable").groupby("outcome", sort=False).head(_POINTS_PER_OUTCOME)
        measured = drawn["effect"].to_numpy(dtype=float)
        predicted = {run: run.effects().at(drawn)[0] for run in runs}
        limit = _round_up(np.nanquantile(np.abs(np.concatenate([measured, *predicted.values()])), _BEYOND))
        figures = []
        for position, run in enumerate(runs):
            known = ~np.isnan(predicted[run])
            title = f"{self.table.title}: predicted and measured effects of {self.table.label(run)}"
            plot = scatter_plot(
                measured[known],
                predicted[run][known],
                drawn["outcome"].to_numpy(dtype=str)[known],
                ident=f"{self.ident}-effects-{position}",
                title=title,
                limit=limit,
                thresholds=_thresholds(self.scores(run)),
                simulated=self.simulated,
            )
            note = "" if known.all() else f", {int((~known).sum())} unsupported not drawn"
            figures.append(self._figure(f"{self.table.label(run)}{note}", plot))
        rule = self.table.manifest["spec"]["rule"]
        about = element(
            "p",
            f"Effects ({rule['statistic']}, natural log) of {len(drawn):,} of {len(asked):,} test questions, at most "
            f"{_POINTS_PER_OUTCOME} of each outcome and the same for every baseline; the few beyond the axes lie on the "
            f"edge. Dashes: thresholds of {self.adapter}. True outcome: ",
            *(
                join(element("span", "●", style=f"color:{COLOURS[name]}", aria_hidden="true"), f" {name} ")
                for name in OUTCOMES
            ),
            class_="hint",
        )
        return details(
            "Predicted and measured effects",
            about,
            element("div", *figures, class_="multiples"),
            simulated=self.simulated,
        )


def _thresholds(scores: dict[str, Any] | None) -> tuple[float, float] | None:
    adapter = (scores or {}).get("adapter", {})
    up, down = adapter.get("tau_up"), adapter.get("tau_down")
    return None if up is None or down is None else (float(up), float(down))


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _round_up(value: float) -> float:
    """Return the next larger of 1, 1.5, 2, 3, 5 times a power of ten."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(round(step * power, 12) for step in (1, 1.5, 2, 3, 5, 10) if value <= step * power * (1 + 1e-9))


def _by_split(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[split]:,} {split}" for split in SPLITS)


def compact(value: Any) -> str:
    """Return a configuration on one line; what is not given is left out."""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key}: {{{compact(item)}}}" if isinstance(item, Mapping) else f"{key}: {compact(item)}"
            for key, item in value.items()
            if item is not None
        )
    return str(value)
