"""Runs that differ in the paths laid over their fold alone: neither takes the other's place, and each says which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pertbase.folds import read_paths
from pertbase.runs import find_runs, read_runs
from pertbase.runs._laid import paths_told
from pertbase.runs._reports._fold_table import CEILING

DIFFERENT = {
    "given none": ["paths=none"],
    "fewer": ["paths=own", "paths.k=3"],
    "shorter": ["paths=own", "paths.hops=2"],
    "no gate": ["paths=own", "paths.gate=none"],
    "another graph": ["paths=own", "paths.graph={edges}"],
    "other edges": ["paths=own"],
}


@pytest.fixture(scope="module")
def edges(simulation, tmp_path_factory) -> Path:  # type: ignore[no-untyped-def]
    """Two files of edges."""
    folder = tmp_path_factory.mktemp("edges")
    simulation.graph.assign(evidence=1).to_csv(folder / "mine.csv", index=False)
    simulation.graph.assign(evidence=1).iloc[::2].to_csv(folder / "other.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def ran(small_screen, edges, tmp_path_factory):  # type: ignore[no-untyped-def]
    """A run with paths, and the command that made it."""
    from pertbase.cli import main

    runs = tmp_path_factory.mktemp("laid") / "runs"
    command = [
        "run", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial",
        "baseline=gene_prior_balanced", f"runs={runs}",
    ]  # fmt: skip
    graph = edges / "graph.csv"
    graph.write_bytes((edges / "mine.csv").read_bytes())
    assert main([*command, "paths=own", f"paths.graph={graph}"]) == 0
    return runs, command, graph


@pytest.mark.parametrize("case", DIFFERENT)
def test_other_paths_under_the_same_name_are_refused_and_kept_under_another(case, ran, edges, pertbase) -> None:  # type: ignore[no-untyped-def]
    runs, command, graph = ran
    named = f"{case} name"
    options = [text.format(edges=edges / "other.csv") for text in DIFFERENT[case]]
    if not any(text.startswith(("paths.graph", "paths=none")) for text in options):
        options.append(f"paths.graph={graph}")
    if case == "other edges":
        graph.write_bytes((edges / "other.csv").read_bytes())
    first = runs / "small" / "combinatorial" / "gene_prior_balanced" / "seed0"
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    try:
        code, out, _ = pertbase(*command, *options)
        assert code == 1
        assert "holds a run of another configuration" in out
        assert "paths" in out.split("another configuration")[1]
        assert {path: path.read_bytes() for path in first.rglob("*") if path.is_file()} == before
        code, out, err = pertbase(*command, *options, f"name={named}")
        assert code == 0, out + err
    finally:
        graph.write_bytes((edges / "mine.csv").read_bytes())
    by_name = {run.config["name"]: run for run in find_runs(runs)}
    told = dict(zip(by_name, paths_told(list(by_name.values())), strict=True))
    assert told[named] != told["gene_prior_balanced"]
    layer = by_name[named].fold.paths
    if case == "given none":
        assert (told[named], layer) == ("no paths", None)
    else:
        # What it says is what it read: its own paths, and not those of the other.
        assert layer is not None
        assert layer.hash == by_name[named].config["paths_hash"] != by_name["gene_prior_balanced"].config["paths_hash"]
        assert read_paths(by_name[named].fold_folder, name=layer.name).hash == layer.hash
        assert by_name["gene_prior_balanced"].fold.paths.name != layer.name


def test_each_is_told_by_what_it_differs_in_and_nothing_where_nothing_differs(ran) -> None:  # type: ignore[no-untyped-def]
    runs, *_ = ran
    found = {run.config["name"]: run for run in find_runs(runs)}
    assert set(found) >= {f"{case} name" for case in DIFFERENT}

    def told(*names: str) -> list[str]:
        return paths_told([found[name] for name in names])

    assert told("gene_prior_balanced") == [""]
    assert told("gene_prior_balanced", "fewer name") == ["k=5", "k=3"]
    assert told("fewer name", "shorter name") == ["hops=3 k=3", "hops=2 k=5"]
    assert told("gene_prior_balanced", "no gate name") == ["gate=expressed", "gate=none"]
    assert told("given none name", "fewer name", "gene_prior_balanced") == ["no paths", "k=3", "k=5"]
    first, second = told("gene_prior_balanced", "other edges name")
    assert {first, second} == {
        f"paths-{found[name].config['paths_hash'][:6]}" for name in ("gene_prior_balanced", "other edges name")
    }
    with_none = told("given none name", "fewer name")
    assert with_none[0] == "no paths"
    assert with_none[1].startswith("paths-")
    every = paths_told(list(found.values()))
    assert len({(text, run.config.get("paths_hash")) for text, run in zip(every, found.values(), strict=True)}) == len(
        set(every)
    )
    # All of them stand in one table: they are of one fold.
    (table,) = read_runs(runs).folds
    assert {run.config["name"] for run in table.runs} == set(found)


def test_the_report_says_which_paths_a_row_was_given_where_rows_differ(ran, pertbase, tmp_path) -> None:  # type: ignore[no-untyped-def]
    runs, *_ = ran
    (table,) = read_runs(runs).folds
    rows = table.rows()
    rows = rows[rows["baseline"] != CEILING]
    given = dict(zip(map(table.label, table.runs), paths_told(table.runs), strict=True))
    assert dict(zip(rows["baseline"], rows["paths"], strict=True)) == given
    assert len(set(given.values())) > 1
    code, text, _ = pertbase("report", f"runs={runs}", "format=md")
    assert code == 0
    assert pertbase("report", f"runs={runs}", f"output={tmp_path / 'page.html'}")[0] == 0
    for shown in (text, (tmp_path / "page.html").read_text()):
        for told in filter(None, given.values()):
            assert f"paths that baselines were given: {told}" in shown
    alike = replace(table, runs=table.runs[:1])
    assert alike.laid() == []
