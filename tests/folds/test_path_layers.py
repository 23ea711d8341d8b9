"""Paths laid over folds: the fold stays what it is, no label reaches a candidate, and nothing of the truth a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import FoldMaker, FoldSpec, PathSpec, check_fold, open_fold, read_paths, read_truth
from pertbase.folds._path_layer import PATH_COLUMNS, lay_paths
from pertbase.knowledge import relation_sign

SPEC = FoldSpec(kind="unseen_perturbation_genetic", paths=PathSpec())


@pytest.fixture(scope="module")
def maker(simulated):
    """One context of the simulated screen, without its drugs: files of a third of the size."""
    obs = simulated.obs
    return FoldMaker(simulated.subset((obs["context"] == "S1") & ~obs["perturbation"].str.startswith("drug")))


@pytest.fixture(scope="module")
def fold(maker):
    bare = maker.make(SPEC.with_(paths=None))
    return replace(bare, spec=SPEC, paths=maker._lay(bare, PathSpec()))


@pytest.fixture(scope="module")
def written(fold, tmp_path_factory):
    return fold.write(tmp_path_factory.mktemp("folds") / "fold")


def test_a_fold_is_the_same_with_paths_and_without(maker, fold):
    assert maker.hash(SPEC) == maker.hash(SPEC.with_(paths=None)) == fold.hash
    asked = fold.truth.questions
    assert asked["id"].tolist() == replace(fold, paths=None).truth.questions["id"].tolist()
    assert set(PATH_COLUMNS) <= set(asked.columns)
    assert set(PATH_COLUMNS).isdisjoint(fold.questions.columns)


def test_permuting_every_label_leaves_candidates_byte_identical(fold):
    questions = fold.questions
    rng = np.random.default_rng(0)
    permuted = questions.assign(outcome=rng.permutation(questions["outcome"].to_numpy()))
    assert (permuted["outcome"] != questions["outcome"]).any()
    layers = [
        lay_paths(one, fold.perturbations, PathSpec(), fold.screen.graph, fold_hash=fold.hash, basal=fold.effects.basal)
        for one in (questions, permuted)
    ]
    for name in ("id", "candidate_paths", "conflict"):
        first, second = (layer.table.column(name).to_pylist() for layer in layers)
        assert repr(first).encode() == repr(second).encode()
    assert layers[0].table.column("reference_paths") != layers[1].table.column("reference_paths")


def test_references_are_candidates_whose_signs_multiply_to_the_outcome(fold):
    table = fold.truth_of("train", "val", "test").questions
    seen = 0
    for row in table.loc[table["reference_paths"].map(len) > 0].itertuples():
        start = fold.perturbations[row.perturbation].signs
        said = set()
        for path in row.reference_paths:
            assert path in row.candidate_paths
            sign = start[path[0][0]]
            for (_, relation, tail), following in zip(path, [*path[1:], None], strict=True):
                sign *= relation_sign(relation)
                assert following is None or following[0] == tail
            assert path[-1][2] == row.gene
            said.add(sign)
        assert said == {"up": {1}, "down": {-1}, "no_change": {1, -1}}[row.outcome]
        assert row.conflict == (len({_sign(path, start) for path in row.candidate_paths} & {1, -1}) == 2)
        assert row.gene in row.reference_text
        seen += 1
    assert seen > 100
    assert (table.loc[table["outcome"].isna(), "reference_text"] == "").all()


def _sign(path, start):
    return int(np.prod([start[path[0][0]], *(relation_sign(edge[1]) for edge in path)]))


def test_models_see_candidates_and_conflicts_and_never_references(fold):
    assert {"candidate_paths", "conflict"} <= set(fold.inputs("test").questions.columns)
    assert {"reference_paths", "reference_text"}.isdisjoint(fold.inputs("test").questions.columns)
    assert {"reference_paths", "reference_text"}.isdisjoint(fold.training.inputs("val").questions.columns)
    assert {"reference_paths", "reference_text"} <= set(fold.training.questions.columns)


def test_a_data_sets_graph_is_handed_out_and_the_generating_network_is_not(simulation, fold):
    for view in (fold.training, fold.inputs("test"), fold.training.inputs("val")):
        assert view.graph.hash == simulation.screen.graph.hash
    true = set(zip(simulation.truth.network["source"], simulation.truth.network["target"], strict=True))
    given = set(zip(*simulation.screen.graph.edges[["source", "target"]].T.to_numpy(), strict=True))
    assert given != true
    assert given - true


def test_the_graph_that_paths_were_looked_for_in_is_handed_out_before_the_data_sets_own(fold):
    other = fold.screen.graph.rewired(np.random.default_rng(0))
    laid = replace(fold, paths=replace(fold.paths, graph=other))
    assert laid.training.graph is laid.inputs("test").graph is other
    assert replace(fold, paths=None).training.graph is fold.screen.graph
    assert replace(fold, paths=None, screen=None).training.graph is None


def test_a_graph_survives_the_file_and_is_part_of_the_screens_hash(simulated, tmp_path):
    from pertbase.folds import read_screen, write_screen

    write_screen(simulated, tmp_path / "screen.h5ad")
    back = read_screen(tmp_path / "screen.h5ad")
    assert back.hash == simulated.hash
    assert back.graph.hash == simulated.graph.hash
    assert replace(simulated, graph=None).hash != simulated.hash
    assert simulated.subset(np.arange(2000)).graph is simulated.graph


# -- files --------------------------------------------------------------------------------------------------


def test_paths_come_back_from_files_as_they_were(fold, written):
    back = open_fold(written)
    assert back.paths.content == fold.paths.content
    assert back.paths.hash == fold.paths.hash
    assert back.spec.paths == PathSpec()
    assert back.paths.graph.hash == fold.screen.graph.hash
    pd.testing.assert_frame_equal(back.truth.questions, fold.truth.questions)
    pd.testing.assert_frame_equal(read_truth(written).questions, fold.truth.questions)
    assert check_fold(written).ok
    assert "paths" in check_fold(written).checked
    assert repr(back.paths) == repr(fold.paths)
    assert f"{(fold.paths.join(fold.questions)['candidate_paths'].map(len) > 0).sum():,} of " in repr(fold.paths)


def test_several_ways_to_choose_paths_lie_side_by_side(maker, tmp_path):
    own = FoldMaker(maker.data)
    own._labelled = maker._labelled
    bare = own.build(SPEC.with_(paths=None), tmp_path)
    first, second = (own.build(SPEC.with_(paths=PathSpec(hops=hops)), tmp_path) for hops in (1, 2))
    assert bare.folder == first.folder == second.folder
    assert first.hash == second.hash == bare.hash
    assert first.paths.hash != second.paths.hash
    assert bare.paths is None
    assert own.build(SPEC.with_(paths=None), tmp_path).paths is None
    assert open_fold(bare.folder).paths is None
    assert read_paths(bare.folder, name=first.paths.hash[:8]).spec.hops == 1
    assert open_fold(bare.folder, paths=second.paths.name).spec.paths.hops == 2
    with pytest.raises(InputError, match="several ways to choose paths"):
        read_paths(bare.folder)
    with pytest.raises(InputError, match="unknown paths"):
        read_paths(bare.folder, name="abc")
    stamps = {path: path.stat().st_mtime_ns for path in bare.folder.rglob("*") if path.is_file()}
    own.build(SPEC.with_(paths=PathSpec(hops=2)), tmp_path)
    assert stamps == {path: path.stat().st_mtime_ns for path in bare.folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["paths.yaml", "questions.parquet", "graph.parquet"])
def test_a_layer_whose_files_were_cut_says_how_to_mend_it(fold, tmp_path, name):
    folder = fold.write(tmp_path / "fold")
    place = folder / fold.paths.name / name
    place.write_bytes(place.read_bytes()[:40])
    with pytest.raises(InputError, match="again"):
        open_fold(folder)


def test_a_changed_layer_is_found(fold, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = fold.write(tmp_path / "fold")
    place = folder / fold.paths.name / "questions.parquet"
    table = pq.read_table(place)
    rows = table.to_pylist()
    rows[0]["reference_text"] = "because"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), place)
    assert any("is not what paths.yaml says" in problem for problem in check_fold(folder).problems)


def test_a_layer_of_another_fold_is_found(fold, tmp_path):
    other = replace(fold.paths, fold_hash="0" * 64)
    folder = replace(fold, paths=None).write(tmp_path / "fold")
    other.write(folder)
    assert any("belongs to another fold" in problem for problem in check_fold(folder).problems)


def test_questions_without_paths_in_a_layer_are_refused(fold):
    strangers = fold.questions.head(2).assign(id=["a", "b"])
    with pytest.raises(InputError, match="has no paths in this layer"):
        fold.paths.join(strangers)


# -- options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"hops": 5}, "paths.hops"),
        ({"hops": True}, "paths.hops"),
        ({"k": 0}, "paths.k"),
        ({"subnetwork": 0}, "paths.subnetwork"),
        ({"gate": "kss"}, "paths.gate"),
        ({"gate": [0.6, 0.2]}, "paths.gate"),
        ({"gate": [0.2]}, "paths.gate"),
        ({"gate": ["low", "high"]}, "paths.gate"),
        ({"weight": (0.2, 0.6)}, "paths.weight"),
        ({"shut": "yes"}, "paths.shut"),
        ({"no_change": "some"}, "paths.no_change"),
        ({"weight": "hub"}, "paths.weight"),
        ({"hop": 3}, "paths option"),
        ("own", "paths"),
    ],
)
def test_options_that_cannot_be_are_refused(options, key):
    with pytest.raises(InputError) as caught:
        PathSpec.of(options)
    assert caught.value.key == key


def test_no_options_are_no_paths_and_a_spec_comes_back_from_its_dictionary():
    assert PathSpec.of({}) is PathSpec.of(None) is None
    spec = FoldSpec(kind="combinatorial", paths=PathSpec(graph=("a", "b"), hops=2, gate=[0.2, 0.6], shut=True))
    assert FoldSpec.from_dict(spec.to_dict()) == spec
    # What was not there before is named where it is asked for alone: layers keep their hashes.
    assert "shut" not in PathSpec().to_dict()
    assert "paths" not in FoldSpec(kind="combinatorial").to_dict()


def test_a_data_set_without_a_graph_needs_one_named(simulated):
    maker = FoldMaker(replace(simulated, graph=None))
    with pytest.raises(UnsupportedError, match=r"paths\.graph"):
        maker.graph(PathSpec())


def test_a_shut_gate_lets_no_path_through_and_reaches_the_file(fold, tmp_path):
    spec = PathSpec(gate=[0.2, 0.6], shut=True)
    options = {"fold_hash": fold.hash, "basal": fold.effects.basal}
    whole = lay_paths(fold.questions, fold.perturbations, PathSpec(), fold.screen.graph, **options)
    layer = lay_paths(fold.questions, fold.perturbations, spec, fold.screen.graph, **options)
    assert layer.gate == {"kind": "given", "low": 0.2, "high": 0.6, "reason": ""}
    level = fold.effects.basal.loc["S1"]
    kept, taken = layer.join(fold.questions), 0
    for before, after in zip(whole.join(fold.questions)["candidate_paths"], kept["candidate_paths"], strict=True):
        off = [path for path in before if any(level.get(edge[0], 1.0) < 0.4 for edge in path[1:])]
        assert not [path for path in off if path in after]
        taken += len(off)
    assert taken > 50
    folder = replace(fold, spec=fold.spec.with_(paths=spec), paths=layer).write(tmp_path / "fold")
    assert open_fold(folder).paths.spec == spec
    assert check_fold(folder).ok


def test_ks_gates_see_train_alone_and_say_what_they_found(fold):
    layer = lay_paths(
        fold.questions,
        fold.perturbations,
        PathSpec(gate="ks", matched=False),
        fold.screen.graph,
        fold_hash=fold.hash,
        basal=fold.effects.basal,
    )
    held = fold.questions["split"] != "train"
    blind = fold.questions.assign(outcome=fold.questions["outcome"].mask(held, "no_change"))
    again = lay_paths(
        blind,
        fold.perturbations,
        PathSpec(gate="ks", matched=False),
        fold.screen.graph,
        fold_hash=fold.hash,
        basal=fold.effects.basal,
    )
    assert layer.gate == again.gate
    assert layer.gate["kind"] == "ks"
    assert layer.table.column("candidate_paths") == again.table.column("candidate_paths")
