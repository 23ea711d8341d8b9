from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from pertbase.baselines.llm import LanguageModel, follow
from pertbase.baselines.llm._counterfactual import deleted, flipped
from pertbase.knowledge import SignedGraph, Triplet


@pytest.fixture
def chain(path_fold):
    """A fold whose every readout gene next to a target is reached by one path."""
    return path_fold()


def test_an_edit_turns_or_takes_the_edge_into_the_readout_gene(chain):
    from pertbase.baselines.llm import Encoder

    record = next(one for one in Encoder(preset="global_path").records(chain.inputs) if one.implied in (1, -1))
    assert flipped(record).implied == -record.implied
    assert flipped(flipped(record)) == record
    two = replace(
        record,
        paths=((Triplet("A", "activates", "B"), Triplet("B", "inhibits", "R")), (Triplet("A", "inhibits", "R"),)),
    )
    assert deleted(two).paths == ((Triplet("A", "activates", "B"),),)
    assert flipped(two).paths[0] == (Triplet("A", "activates", "B"), Triplet("B", "activates", "R"))


def test_a_model_that_follows_paths_follows_every_edit_and_one_that_does_not_none(chain, rule_client):
    shares = {}
    for follows in (True, False):
        model = LanguageModel(client=rule_client(follows=follows, name=str(follows)), preset="global_path").fit(
            chain.training
        )
        shares[follows] = {one.edit: one for one in follow(model, chain.inputs, n=10)}
    for edit in ("flipped", "deleted"):
        yes, no = shares[True][edit], shares[False][edit]
        assert yes.n == no.n > 0
        assert (yes.agreed.value, yes.followed.value, yes.moved.value) == (1, 1, 1)
        assert yes.score.value > 0.5
        assert (no.agreed.value, no.moved.value, no.score.value) == (0, 0, 0)
        assert no.followed.value == (1 if edit == "deleted" else 0)  # it says no_change, whatever is shown


def test_where_letters_answer_it_is_their_answers_that_follow_and_no_reply_is_asked_for(chain, rule_client):
    client = rule_client(name="letters")
    model = LanguageModel(client=client, preset="global_path", answer_from="options").fit(chain.training)
    by_edit = {one.edit: one for one in follow(model, chain.inputs, n=10)}
    assert {request.kind for request in client.heard} == {"letters"}
    assert by_edit["flipped"].agreed.value == by_edit["flipped"].followed.value == 1
    assert by_edit["deleted"].followed.value == 1


def test_a_swapped_context_counts_where_its_paths_imply_something_else(chain, rule_client):
    # to lower G9 lowers G11 over G10, and raises it over G0, where G10 is off
    edges = {"source": ["G9", "G10", "G9", "G0"], "target": ["G10", "G11", "G0", "G11"], "sign": [1, 1, -1, 1]}
    basal = chain.inputs.basal.copy()
    basal.loc["A", ["G10", "G0"]] = [2.0, 0.0]
    basal.loc["B", ["G10", "G0"]] = [0.0, 2.0]
    graph = SignedGraph.from_edges(pd.DataFrame(edges), name="two ways")
    inputs = replace(chain.inputs, graph=graph, basal=basal)
    model = LanguageModel(client=rule_client(), preset="cell_path", k=1).fit(replace(chain.training, graph=graph))
    context = follow(model, inputs, n=50)[2]
    assert (context.edit, context.n) == ("context", 2)
    assert context.followed.value == 1
    ignores = LanguageModel(client=rule_client(follows=False, name="no"), preset="cell_path", k=1)
    assert follow(ignores.fit(replace(chain.training, graph=graph)), inputs, n=50)[2].followed.value == 0


def test_another_context_is_looked_at_with_the_gate_of_the_paths_that_were_laid(maker):
    from pertbase.baselines.llm import Encoder
    from pertbase.folds import FoldSpec, PathSpec

    spec = FoldSpec(
        kind="unseen_perturbation_genetic", per_outcome=20, reached=3, paths=PathSpec(gate=[0.2, 0.6], shut=True)
    )
    fold = maker.draw(spec)
    fold = replace(fold, paths=maker._lay(fold, spec.paths))
    inputs, encoder = fold.inputs("test", cells=False), Encoder(preset="cell_path")
    records, bare = encoder.records(inputs), []
    for laid in (False, True):
        if laid:
            encoder.as_laid(fold.paths.options)
        # To its own context, a question comes back with the paths that it has.
        bare.append([encoder.swapped(record, inputs, context=record.context) for record in records])
    assert bare[1] == records
    assert bare[0] != records
