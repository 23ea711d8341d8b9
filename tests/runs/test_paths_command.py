from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from pertbase.errors import InputError
from pertbase.folds import PathSpec
from pertbase.runs._commands._paths import find, told


@pytest.fixture(scope="module")
def question(maker):
    """A measured question of the simulated screen whose candidates agree with it."""
    from pertbase.folds import FoldSpec
    from pertbase.knowledge._candidates import find_candidates

    labelled = maker.labelled(FoldSpec(kind="published"))
    called = labelled.questions.loc[labelled.questions["outcome"].isin(("up", "down"))].reset_index(drop=True)
    found = find_candidates(called, labelled.perturbations, maker.data.graph)
    rows = [row for row in range(len(called)) if found.offsets[row + 1] - found.offsets[row] > 1]
    return called.iloc[rows[0]]


def test_paths_are_shown_with_what_was_measured(maker, question):
    shown = find(
        maker, PathSpec(), context=question["context"], perturbation=question["perturbation"], gene=question["gene"]
    )
    lines = told(shown)
    assert lines[0].startswith("simulated")
    assert f"measured: {question['outcome']} (effect {question['effect']:.3g}" in lines[1]
    assert len(shown.paths) > 1
    for path, line in zip(shown.paths, lines[3:], strict=False):
        assert str(path) in line
        if path.sign:
            agrees = {1: "up", -1: "down"}[path.sign] == question["outcome"]
            assert (", as measured" in line) == agrees
            assert ("unlike what was measured" in line) == (not agrees)


def test_the_command_prints_and_draws(pertbase, tmp_path, question):
    drawn = tmp_path / "paths.svg"
    code, out, err = pertbase(
        "paths", "show", f"context={question['context']}", f"perturbation={question['perturbation']}",
        f"gene={question['gene']}", f"output={drawn}",
    )  # fmt: skip
    assert code == 0, err
    assert "hops 3, weight evidence, gate expressed" in out
    root = ET.fromstring(drawn.read_text(encoding="utf-8"))
    texts = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {question["gene"], "SIMULATED"} <= texts


def test_a_gate_is_given_by_its_two_levels_and_can_be_shut(pertbase, question):
    asked = [f"{key}={question[key]}" for key in ("context", "perturbation", "gene")]
    code, out, err = pertbase("paths", "show", *asked, "gate=[0.2,0.6]", "shut=true")
    assert code == 0, err
    assert "gate from 0.2 to 0.6, shut below one half" in out
    for option, key in (("gate=[0.6,0.2]", "paths.gate"), ("gate=[0.6", "gate"), ("shut=yess", "paths.shut")):
        code, _, err = pertbase("paths", "show", *asked, option)
        assert code == 2
        assert key in err


def test_a_pair_without_paths_says_why_and_what_is_reached(maker, question):
    target = maker.data.perturbations[question["perturbation"]].targets[0]
    graph = maker.data.graph
    unreached = next(gene for gene in maker.data.genes if graph.locate([gene])[0] < 0 and gene != target)
    shown = find(maker, PathSpec(), context=question["context"], perturbation=question["perturbation"], gene=unreached)
    lines = told(shown)
    assert f"no path: the graph does not have {unreached}" in lines
    reached = next(line for line in lines if line.startswith("reached from there")).partition(": ")[2]
    assert all(word.split()[1] in ("up", "down") for word in reached.split(", "))
    for word in reached.split(", "):
        options = {"context": question["context"], "perturbation": question["perturbation"]}
        assert find(maker, PathSpec(), gene=word.split()[0], **options).paths


def test_perturbations_are_named_in_full_or_by_what_was_perturbed(maker):
    names = maker.data.perturbations
    both = next(
        name.partition(":")[2]
        for name in names
        if f"CRISPRi:{name.partition(':')[2]}" in names and name.startswith("CRISPRa:")
    )
    context = maker.data.contexts[0]
    with pytest.raises(InputError, match="several perturbations are called so"):
        find(maker, PathSpec(), context=context, perturbation=both, gene=str(maker.data.genes[0]))
    single = next(
        name for name in names if name.startswith("CRISPRi:") and "+" not in name and f"CRISPRa:{name[8:]}" not in names
    )
    shown = find(maker, PathSpec(), context=context, perturbation=single[8:], gene=str(maker.data.genes[0]))
    assert shown.perturbation.name == single


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "context: is missing"),
        (["show", "context=S1", "perturbation=X", "gene=SG001", "hop=3"], "Did you mean 'hops'"),
        (["show", "context=S1", "perturbation=X", "gene=SG001", "hops=three"], "hops: is a whole number"),
        (["show", "context=S1", "perturbation=X", "gene=SG001", "output=a.png"], "drawn as .svg"),
        (["show", "context=S9", "perturbation=X", "gene=SG001"], "unknown context"),
        (["show", "context=S1", "perturbation=X", "gene=SG001"], "no such perturbation"),
        (["show", "context=S1", "perturbation=X", "gene=SG001", "graph={path: e.tsv, columns: {"], "graph: cannot be"),
        (["shw"], "Did you mean 'show'"),
        ([], "does show"),
    ],
)
def test_a_mistaken_command_says_what_to_type(pertbase, arguments, message):
    code, _, err = pertbase("paths", *arguments)
    assert code == 2
    assert message in err


def test_interferon_signalling_is_found_where_it_was_knocked_out(pertbase, real_data, monkeypatch):
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    code, out, err = pertbase(
        "paths", "show", "data=papalexi", "context=THP-1", "perturbation=IFNGR1", "gene=PSMB9",
        "graph=omnipath_carnival,collectri",
    )  # fmt: skip
    assert code == 0, err
    assert "measured: down" in out
    first = next(line for line in out.splitlines() if line.startswith("  1"))
    assert "IFNGR1 -> STAT1 -> PSMB9" in first
    assert "says down, as measured" in first
    assert "IFNGR1 -> JAK2 -> STAT1 -> PSMB9" in out


@pytest.mark.slow
def test_folds_are_made_with_paths_and_runs_on_them_record_which(pertbase, tmp_path):
    from pertbase._io import read_yaml

    common = ("fold=combinatorial", "data=simulated")
    folds = tmp_path / "runs" / "_folds"
    code, out, err = pertbase("folds", "make", *common, "paths=own", "paths.hops=2", f"output={folds}")
    assert code == 0, err
    (folder,) = folds.glob("simulated-*")
    assert len(list(folder.glob("paths-*/paths.yaml"))) == 1
    code, out, err = pertbase("run", *common, "paths=own", "baseline=gene_prior", f"runs={tmp_path / 'runs'}")
    assert code == 0, out + err
    assert len(list(folder.glob("paths-*/paths.yaml"))) == 2
    (config,) = (tmp_path / "runs").rglob("config.yaml")
    about = read_yaml(config)
    assert about["fold"]["paths"]["hops"] == 3
    assert len(about["paths_hash"]) == 64
    code, out, err = pertbase("run", *common, "paths=ownn", "baseline=gene_prior", f"runs={tmp_path / 'runs'}")
    assert code == 2
    assert "Did you mean 'own'" in err


def test_a_table_with_columns_of_ones_own_is_a_graph_by_its_remedy(pertbase, tmp_path, question):
    context, perturbation, gene = (str(question[name]) for name in ("context", "perturbation", "gene"))
    target = perturbation.rpartition(":")[2].partition("+")[0].partition("@")[0]
    edges = tmp_path / "mine.tsv"
    edges.write_text(f"from\tto\teffect\n{target}\t{gene}\traises\n")
    asked = ["show", f"context={context}", f"perturbation={perturbation}", f"gene={gene}"]
    code, _, err = pertbase("paths", *asked, f"graph={edges}")
    assert code == 2
    assert "graph={path: FILE, columns: {source: NAME, target: NAME, sign: NAME}}" in err
    columns = "columns: {source: from, target: to, sign: effect}"
    code, _, err = pertbase("paths", *asked, f"graph={{path: {edges}, {columns}}}")
    assert code == 2
    assert "graph={path: FILE, signs: {raises: -1}}" in err
    code, out, err = pertbase("paths", *asked, f"graph={{path: {edges}, {columns}, signs: {{raises: 1}}}}")
    assert code == 0, err
    assert f"-> {gene}" in out
