from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pertbase.baselines.llm import Encoder, LanguageModel, Level, in_words, read_template
from pertbase.baselines.llm._record import example_questions
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import FoldSpec, Part, PathSpec, Perturbation
from pertbase.knowledge import SignedGraph, Triplet

PRESETS = ("no_path", "global_path", "cell_path")


def every_prompt(fold, preset, client):
    """All that a model would be told of a fold: replies, letters, and its own replies, of val and of test."""
    training = fold.make_training(seed=0, cells=False)
    model = LanguageModel(client=client, preset=preset, examples=4, samples=1).fit(training)
    after = LanguageModel(client=client, preset=preset, examples=4, scores_after="reason").fit(training)
    requests = []
    for inputs in (fold.inputs("test", cells=False), training.inputs("val")):
        records = model.records(inputs)
        requests += [*model.reply_requests(records), *model.letter_requests(records)]
        begun = len(client.heard)
        after.answer(inputs)
        requests += client.heard[begun:]
    return requests


@pytest.fixture(scope="module")
def mini_fold(maker):
    spec = FoldSpec(kind="unseen_perturbation_genetic", per_outcome=25, paths=PathSpec())
    fold = maker.draw(spec)
    return replace(fold, paths=maker._lay(fold, spec.paths))


def with_other_truth(fold, rng):
    """Return the fold with the labels of test permuted, and of val too, and what follows from them scrambled."""
    questions = fold.questions.copy()
    asked = questions["split"].isin(("val", "test")).to_numpy()
    shuffled = rng.permutation(np.flatnonzero(asked))
    for column in ("outcome", "effect", "p_value", "p_adjusted", "n_cells", "regime"):
        if column in questions:
            questions.loc[asked, column] = questions[column].to_numpy()[shuffled]
    table = fold.paths.table.to_pandas()
    is_asked = table["id"].isin(questions.loc[asked, "id"]).to_numpy()
    for column in ("reference_paths", "reference_text"):
        moved = table[column].to_numpy(dtype=object).copy()
        moved[is_asked] = moved[rng.permutation(np.flatnonzero(is_asked))]
        table[column] = moved
    import pyarrow as pa

    other = pa.Table.from_pandas(table, schema=fold.paths.table.schema, preserve_index=False)
    held = fold.conditions.loc[fold.conditions["split"].isin(("val", "test")), ["context", "perturbation"]]
    among = pd.MultiIndex.from_frame(fold.effects.conditions[["context", "perturbation"]])
    known = among.isin(pd.MultiIndex.from_frame(held))
    effects = replace(fold.effects, values=np.where(known[:, None], -3.0, fold.effects.values))
    return replace(fold, questions=questions, effects=effects, paths=replace(fold.paths, table=other))


@pytest.mark.parametrize("preset", PRESETS)
def test_permuting_every_label_of_test_and_val_leaves_all_prompts_byte_for_byte(preset, mini_fold, begun_client):
    other = with_other_truth(mini_fold, np.random.default_rng(0))
    assert (other.truth.questions["outcome"].to_numpy() != mini_fold.truth.questions["outcome"].to_numpy()).any()
    first, second = (every_prompt(fold, preset, begun_client()) for fold in (mini_fold, other))
    assert first == second
    assert len(first) == 8 * 75


@pytest.mark.parametrize("preset", PRESETS)
def test_examples_come_from_train_and_change_with_its_labels_alone(preset, mini_fold, rule_client):
    training = mini_fold.make_training(seed=0, cells=False)
    shown = example_questions(training, 6)
    # asked for more than there are, all of train come, and nothing else
    assert set(example_questions(training, 10**6)["split"]) == {"train"}
    assert shown["outcome"].value_counts().to_dict() == {"up": 2, "down": 2, "no_change": 2}
    model = LanguageModel(client=rule_client(), preset=preset, examples=6).fit(training)
    told = model._template.examples(model._shown)
    assert told.count('"answer": "up"') == 2
    pd.testing.assert_frame_equal(shown, example_questions(mini_fold.make_training(seed=0, cells=False), 6))
    assert list(shown["id"]) != list(example_questions(mini_fold.make_training(seed=1, cells=False), 6)["id"])


def test_prompts_with_paths_and_without_differ_in_the_paths_alone(mini_fold):
    inputs = mini_fold.inputs("test", cells=False)
    no_path, anywhere, cell = (Encoder(preset=preset).records(inputs) for preset in PRESETS)
    assert all(record.paths is None for record in no_path)
    for one, two, three in zip(no_path, anywhere, cell, strict=True):
        assert one == replace(two, paths=None) == replace(three, paths=None)
    of_fold = [tuple(tuple(map(tuple, path)) for path in paths) for paths in inputs.questions["candidate_paths"]]
    assert [record.paths for record in cell] == of_fold


def test_paths_of_the_cell_go_round_what_the_cell_does_not_express(path_fold):
    fold = path_fold()
    edges = pd.DataFrame({"source": ["G9", "G9", "G0", "G1"], "target": ["G0", "G1", "G2", "G2"], "sign": 1})
    basal = fold.inputs.basal.copy()
    basal.loc["A", ["G0", "G1"]] = [0.0, 1.0]
    basal.loc["B", ["G0", "G1"]] = [1.0, 0.0]
    inputs = replace(fold.inputs, graph=SignedGraph.from_edges(edges, name="fork"), basal=basal)
    asked = inputs.questions.loc[(inputs.questions["targets"] == "G9") & (inputs.questions["gene"] == "G2")]
    through = {}
    for preset in ("global_path", "cell_path"):
        records = Encoder(preset=preset, k=1).records(replace(inputs, questions=asked))
        through[preset] = {record.context: record.paths[0][0].tail for record in records}
    assert through["cell_path"] == {"A": "G1", "B": "G0"}
    assert through["global_path"]["A"] == through["global_path"]["B"]


def test_gated_paths_are_found_where_the_fold_brings_none(mini_fold):
    inputs = mini_fold.inputs("test", cells=False)
    bare = replace(inputs, questions=inputs.questions.drop(columns=["candidate_paths", "conflict"]))
    spec = mini_fold.paths.spec
    found = Encoder(preset="cell_path", hops=spec.hops, k=spec.k).records(bare)
    assert found == Encoder(preset="cell_path").records(inputs)


def test_what_was_done_is_said_in_words():
    assert in_words(Perturbation.genetic(["A"], "CRISPRi")) == "CRISPR interference lowers A"
    assert (
        in_words(Perturbation.genetic(["B", "A"], "CRISPRa"))
        == "CRISPR activation raises A and CRISPR activation raises B"
    )
    assert in_words(Perturbation.genetic(["A"], "CRISPR-KO")) == "CRISPR knock-out removes A"
    drug = Perturbation((Part("drug", (("T", -1), ("U", 0)), "imatinib", 0.5),))
    assert in_words(drug) == "the drug imatinib at 0.5 micromolar is given (inhibits T, acts on U)"
    assert in_words(Perturbation((Part("ligand", (), "x"),))) == "the ligand x is given (its targets are not known)"


def test_levels_are_said_in_words_and_numbers(path_fold):
    fold = path_fold()
    record = Encoder().records(fold.inputs)[0]
    row = fold.inputs.basal.loc[record.context]
    for level in record.levels:
        assert level.value == row[level.gene]
        assert level.share == pytest.approx((row < row[level.gene]).sum() / (len(row) - 1))
    assert [level.gene for level in record.levels] == [record.gene, record.targets[0][0]]
    assert str(Level("G", 0.005, 0.0)) == "G: not detected (mean log1p 0.01)"
    assert str(Level("G", 1.234, 0.5)) == "G: medium (mean log1p 1.23, above 50% of genes)"
    assert str(Level("G")) == "G: not measured"


def test_a_table_of_outcomes_says_that_nothing_was_measured(path_fold):
    fold = path_fold(expression=False)
    assert {str(level).partition(": ")[2] for level in Encoder().records(fold.inputs)[0].levels} == {"not measured"}


def test_paths_without_a_graph_are_refused_by_name(path_fold):
    fold = path_fold(graph=False)
    assert Encoder(preset="no_path").refuses(fold.training) is None
    assert "global_path shows paths, and small brings no graph" in Encoder(preset="global_path").refuses(fold.training)
    with pytest.raises(UnsupportedError, match="there is no graph"):
        Encoder(preset="cell_path").records(fold.inputs)
    with pytest.raises(InputError, match="Did you mean 'cell_path'"):
        Encoder(preset="cell_paths")


def test_what_paths_imply_is_start_times_product_and_nothing_where_they_disagree(path_fold):
    record = Encoder(preset="global_path").records(path_fold().inputs)[0]
    up, down = Triplet("A", "activates", "R"), Triplet("A", "inhibits", "R")
    lowered = replace(record, targets=(("A", -1),), gene="R")
    assert replace(lowered, paths=((up,),)).implied == -1
    assert replace(lowered, paths=((Triplet("A", "inhibits", "B"), Triplet("B", "inhibits", "R")),)).implied == -1
    assert replace(lowered, paths=((up,), (down,))).implied == 0
    assert replace(lowered, paths=((Triplet("A", "affects", "R"),),)).implied == 0
    assert replace(lowered, paths=()).implied is None


# -- templates ----------------------------------------------------------------------------------------------


def own(tmp_path, text):
    path = tmp_path / "mine.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


GOOD = (
    "[[system]]\n[[question]]\n$perturbation in $context: $gene?\n[[reply]]\n$question Reply.\n"
    "[[options]]\n$question\n$options\n"
)


def test_a_template_of_ones_own_is_used_and_named_in_the_prompt(tmp_path, path_fold, rule_client):
    fold = path_fold()
    model = LanguageModel(client=rule_client(), template=own(tmp_path, GOOD.replace("\n", "\r\n"))).fit(fold.training)
    record = model.records(fold.inputs)[0]
    assert model.prompts([record]) == [(("user", f"{record.perturbation} in {record.context}: {record.gene}? Reply."),)]
    assert model.account()["template"] == read_template(own(tmp_path, GOOD), "no_path").hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("$gene", "$outcome"), r"\$outcome: \[\[question\]\] has a place that nothing fills"),
        (GOOD.replace("$gene", "it"), r"\$gene: \[\[question\]\] lacks a place"),
        (GOOD.replace("$gene", "$gene costs 5$"), "stray dollar sign"),
        (GOOD.split("[[options]]")[0], "options: a template lacks a section"),
        (GOOD + "[[answer]]\n", "answer: a template has an unknown section"),
        ("", "system: a template lacks a section"),
    ],
)
def test_a_template_that_cannot_be_says_where(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read_template(own(tmp_path, text), "no_path")
    assert "mine.txt" in str(caught.value)


def test_examples_want_a_section_for_them(tmp_path, path_fold, rule_client):
    fold = path_fold()
    model = LanguageModel(client=rule_client(), template=own(tmp_path, GOOD), examples=1).fit(fold.training)
    with pytest.raises(InputError, match=r"without \[\[example\]\] shows no examples"):
        model.answer(fold.inputs)


def test_letters_are_listed_in_orders_that_cancel(path_fold, rule_client):
    fold = path_fold()
    for orders in (1, 3, 6):
        model = LanguageModel(client=rule_client(follows=True), preset="global_path", orders=orders).fit(fold.training)
        request = model.letter_requests(model.records(fold.inputs))[0]
        listed = [prompt[-1][1].split("\nA. ")[1].split("\n")[0] for prompt in request.prompts]
        assert len(request.prompts) == orders
        if orders > 1:
            assert sorted(listed) == sorted(["it goes up", "it goes down", "no change"] * (orders // 3))
    with pytest.raises(InputError, match="1, 3 or 6 orders"):
        LanguageModel(client=rule_client(), orders=2)
