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
