"""Pictures of a fold show what its tables hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pertbase import plot
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import OUTCOMES, Fold, graph_coverage


def widths(ax, label: str) -> list[float]:  # type: ignore[no-untyped-def]
    """Return the widths of one kind of bars, from top to bottom."""
    (bars,) = [bars for bars in ax.containers if bars.get_label() == label]
    return [bar.get_width() for bar in bars]


def labels(ax) -> list[str]:  # type: ignore[no-untyped-def]
    return [text.get_text() for text in ax.get_yticklabels()]


def legend(ax) -> list[str]:  # type: ignore[no-untyped-def]
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("by", ["split", "context", "mechanism", "gene"])
def test_bars_of_outcomes_are_shares_of_all_questions_of_their_group(fold: Fold, by: str) -> None:
    ax = plot.outcome_balance(fold, by=by, most=7)
    names = [label.split(" (n = ")[0] for label in labels(ax)]
    assert len(names) == min(7, fold.questions[by].nunique())
    for row, name in enumerate(names):
        own = fold.questions.loc[fold.questions[by] == name, "outcome"]
        assert labels(ax)[row] == f"{name} (n = {len(own):,})"
        for outcome in OUTCOMES:
            assert widths(ax, outcome)[row] == pytest.approx((own == outcome).mean())
        assert widths(ax, "ambiguous")[row] == pytest.approx(own.isna().mean())


def test_genes_with_the_most_changes_come_first_and_the_title_says_how_many_there_are(fold: Fold) -> None:
    ax = plot.outcome_balance(fold, by="gene", split="test", most=5)
    test = fold.questions.loc[fold.questions["split"] == "test"]
    changes = test.loc[test["outcome"].isin(("up", "down"))].groupby("gene").size()
    shown = [changes[label.split(" (n = ")[0]] for label in labels(ax)]
    assert shown == sorted(changes, reverse=True)[:5]
    assert f"the 5 of {test['gene'].nunique():,} with the most changes" in ax.get_title(loc="left")


def test_what_cannot_be_grouped_by_is_told_with_what_can(fold: Fold) -> None:
    with pytest.raises(InputError, match="Did you mean 'gene'"):
        plot.outcome_balance(fold, by="genes")
    with pytest.raises(InputError, match="Known: test, train, val"):
        plot.outcome_balance(fold, split="tset")


def test_effects_are_counted_by_outcome_and_the_rule_s_threshold_is_drawn(fold: Fold) -> None:
    ax = plot.effect_distribution(fold, split="train", bins=40)
    train = fold.questions.loc[fold.questions["split"] == "train"]
    assert f"up (n = {(train['outcome'] == 'up').sum():,})" in legend(ax)
    assert f"ambiguous (n = {train['outcome'].isna().sum():,})" in legend(ax)
    heights = [line.get_ydata() for line in ax.lines if len(line.get_xdata()) > 2]
    totals = {round(float(np.sum(line[:-1]))) for line in heights}
    low, high = ax.get_xlim()
    inside = train.loc[train["effect"].between(low, high)]
    assert {int((inside["outcome"] == outcome).sum()) for outcome in OUTCOMES} <= totals
    below, above = (train["effect"] < low).sum(), (train["effect"] > high).sum()
    assert below > 0
    assert above > 0
    assert f"beyond the axis: {below:,} on the left, {above:,} on the right" in ax.get_xlabel()
    drawn = {round(float(line.get_xdata()[0]), 9) for line in ax.lines if len(line.get_xdata()) == 2}
    assert {-fold.spec.rule.tau, fold.spec.rule.tau} <= drawn
    assert fold.spec.rule.statistic in ax.get_xlabel()


@pytest.mark.parametrize("bins", [1, 7, 40, 60])
def test_no_bar_of_effects_lies_across_the_threshold_and_none_of_a_call_within_it(fold: Fold, bins: int) -> None:
    from matplotlib.colors import to_rgba

    ax = plot.effect_distribution(fold, bins=bins)
    tau = fold.spec.rule.tau
    drawn = [line for line in ax.lines if len(line.get_xdata()) > 2]
    for line in drawn:
        edges = np.unique(line.get_xdata())
        assert np.isclose(edges[:, None], [-tau, 0, tau]).any(axis=0).all()
    for outcome, side in (("up", 1), ("down", -1)):
        (line,) = [line for line in drawn if to_rgba(line.get_color()) == to_rgba(plot.COLOURS[outcome])]
        starts, heights = line.get_xdata()[:-1], line.get_ydata()[:-1]
        middles = starts + np.diff(line.get_xdata()) / 2
        assert (side * middles[heights > 0] > tau).all()


def test_what_is_no_fold_is_told_with_what_has_one(fold: Fold) -> None:
    for draw in (plot.outcome_balance, plot.effect_distribution, plot.split_map, plot.controls, plot.coverage):
        with pytest.raises(InputError, match=r"is not a Fold \(got 'Training'\).*run\.fold"):
            draw(fold.training)  # type: ignore[arg-type]


def test_a_fold_of_outcomes_alone_has_no_effects_and_no_controls_to_draw(fold: Fold) -> None:
    bare = replace(fold, questions=fold.questions.assign(effect=np.nan), controls=fold.controls.iloc[:0])
    with pytest.raises(UnsupportedError, match="no effects"):
        plot.effect_distribution(bare)
    with pytest.raises(UnsupportedError, match="no controls"):
        plot.controls(bare)


def test_the_map_shows_the_split_of_every_condition_once(fold: Fold) -> None:
    from matplotlib.colors import to_hex

    ax = plot.split_map(fold)
    (mesh,) = ax.collections
    values = mesh.get_array()
    contexts = labels(ax)
    sizes = fold.conditions["split"].value_counts()
    assert set(legend(ax)) == {f"{split} (n = {size:,})" for split, size in sizes.items()}
    assert int((~np.ma.getmaskarray(values)).sum()) == len(fold.conditions)
    colours = {
        text.split(" (n")[0]: to_hex(patch.get_facecolor())
        for text, patch in zip(legend(ax), ax.get_legend().get_patches(), strict=True)
    }
    for row, context in enumerate(contexts):
        drawn = pd.Series([to_hex(mesh.to_rgba(value)) for value in values[row].compressed()]).value_counts()
        own = fold.conditions.loc[fold.conditions["context"] == context, "split"].value_counts()
        assert {split: int(drawn.get(colour, 0)) for split, colour in colours.items() if split in own} == own.to_dict()


def test_the_map_names_perturbations_where_there_is_room_and_leaves_out_unused_ones_on_request(fold: Fold) -> None:
    used = fold.conditions.loc[fold.conditions["split"].isin(("train", "val", "test"))]
    some = sorted(used["perturbation"].unique())[::3]
    few = replace(fold, conditions=fold.conditions.loc[fold.conditions["perturbation"].isin(some)])
    used = used.loc[used["perturbation"].isin(some)]
    ax = plot.split_map(few, unused=False)
    names = [text.get_text() for text in ax.get_xticklabels()]
    assert sorted(names) == sorted(used["perturbation"].unique())
    order = used.drop_duplicates("perturbation").set_index("perturbation")["split"].reindex(names)
    assert list(order) == sorted(order, key=("train", "val", "test").index)
    assert len(plot.split_map(fold).get_xticklabels()) == 0


def test_names_of_the_map_are_as_large_on_a_page_as_their_columns_are_wide(fold: Fold) -> None:
    perturbations = sorted(fold.conditions["perturbation"].unique())
    for n in (5, 40, 60, len(perturbations)):
        some = fold.conditions["perturbation"].isin(perturbations[:n])
        ax = plot.split_map(replace(fold, conditions=fold.conditions.loc[some]))
        figure = ax.figure
        figure.canvas.draw()
        assert figure.get_figwidth() <= 9
        column = ax.get_window_extent().width / figure.dpi * 72 / n
        assert (n <= 40) == (len(ax.get_xticklabels()) > 0)
        assert all(7 <= text.get_fontsize() <= column for text in ax.get_xticklabels())


def test_controls_are_counted_by_context_and_role(fold: Fold) -> None:
    ax = plot.controls(fold)
    counts = fold.controls.groupby(["context", "role"]).size().unstack()
    assert labels(ax) == list(counts.index)
    for role in ("input", "truth"):
        assert widths(ax, f"{role} (n = {counts[role].sum():,})") == counts[role].tolist()


def test_coverage_counts_what_the_graph_has(fold: Fold) -> None:
    graph = fold.graph
    assert graph is not None
    edges = graph.edges
    targets = {gene for item in fold.perturbations.values() for gene in item.targets}
    genes = set(fold.questions["gene"])
    table = graph_coverage(fold)
    assert table.loc["targets in the graph", "n"] == len(targets & set(graph.nodes))
    assert table.loc["targets that act on a gene", "n"] == len(targets & set(edges["source"]))
    assert table.loc["readout genes acted on", ["n", "of"]].tolist() == [len(genes & set(edges["target"])), len(genes)]
    questions = fold.paths.join(fold.questions)  # type: ignore[union-attr]
    up = questions.loc[questions["outcome"] == "up"]
    assert table.loc["up, with a candidate path", "n"] == sum(len(paths) > 0 for paths in up["candidate_paths"])
    ax = plot.coverage(fold)
    shares = [bar.get_width() for bar in ax.containers[1]]
    assert shares == pytest.approx(table["share"].tolist())
    assert f"{len(up):,}" in " ".join(text.get_text() for text in ax.texts)


def test_a_share_of_nothing_is_no_bar(fold: Fold) -> None:
    """Whatever outcome no question has: a bar of length 0 would say that none of them is reached."""
    for outcome in OUTCOMES:
        without = replace(fold, questions=fold.questions.loc[fold.questions["outcome"] != outcome])
        table = graph_coverage(without)
        assert table.loc[f"{outcome}, with a candidate path", "of"] == 0
        ax = plot.coverage(without)
        there = np.flatnonzero(table["share"].notna())
        assert len(there) == len(table) - 1
        for bars in ax.containers:
            assert [bar.get_y() + bar.get_height() / 2 for bar in bars] == pytest.approx(there)
        assert len(labels(ax)) == len(table)


def test_coverage_of_another_graph_says_nothing_of_the_paths_in_the_fold_s_own(fold: Fold) -> None:
    from pertbase.knowledge import SignedGraph

    assert fold.graph is not None
    other = SignedGraph.from_edges(fold.graph.edges.iloc[:50], name="other")
    table = graph_coverage(fold, other)
    assert not any("path" in name for name in table.index)
    with pytest.raises(InputError, match="the fold has no graph"):
        plot.coverage(replace(fold, paths=None, screen=None))
