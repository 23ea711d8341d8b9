from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pertbase.errors import InputError
from pertbase.folds import Part, Perturbation
from pertbase.knowledge import SignedGraph, candidate_paths
from pertbase.knowledge._candidates import find_candidates
from pertbase.knowledge._gates import EXPRESSED, node_gates
from pertbase.knowledge._references import is_reference, reference_text

GENES = [f"G{number:02d}" for number in range(25)]


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({side: rng.choice(GENES, 110) for side in ("source", "target")})
    table["sign"] = rng.choice([1, -1, 0], len(table), p=[0.5, 0.4, 0.1])
    table["evidence"] = rng.integers(1, 4, len(table))
    return SignedGraph.from_edges(table, name="drawn")


def perturbations():
    drug = Perturbation((Part("drug", (("G03", 0), ("G04", -1)), compound="d"),))
    made = [
        Perturbation.genetic(["G00"], "CRISPRi"),
        Perturbation.genetic(["G01"], "CRISPRa"),
        Perturbation.genetic(["G00", "G02"], "CRISPR-KO"),
        Perturbation.genetic(["NOWHERE"], "CRISPRi"),
        drug,
    ]
    return {item.name: item for item in made}


def asked():
    rows = [
        (context, name, gene) for context in ("C", "D") for name in perturbations() for gene in [*GENES, "NOT_THERE"]
    ]
    table = pd.DataFrame(rows, columns=["context", "perturbation", "gene"])
    return table.sample(frac=1, random_state=0).reset_index(drop=True)


@pytest.fixture(scope="module")
def basal():
    rng = np.random.default_rng(1)
    return pd.DataFrame(rng.uniform(0.0, 0.2, (2, len(GENES))), index=["C", "D"], columns=GENES)


def listed(found, row):
    return [(path.nodes, path.signs, path.start) for path in found.paths(row)]


@pytest.mark.parametrize("gated", [False, True])
def test_many_questions_at_once_have_the_paths_each_has_alone(graph, basal, gated):
    questions, known = asked(), perturbations()
    found = find_candidates(questions, known, graph, k=4, gate=EXPRESSED if gated else None, basal=basal)
    for row, (context, name, gene) in enumerate(questions.itertuples(index=False)):
        gates = node_gates(graph, basal.loc[context], EXPRESSED) if gated else np.ones(len(graph.nodes))
        for target, sign in known[name].signs.items():
            place = graph.locate([target])[0]
            lowered = sign < 0 and known[name].modality == "genetic"
            if place >= 0 and not (lowered and gates[place] < 0.5):
                gates[place] = 1.0
        if gated and len(known[name].signs) > 1:
            # The gate of one target counts where a path of another runs through it.
            continue
        alone = candidate_paths(graph, known[name].signs, gene, k=4, gates=gates)
        assert listed(found, row) == [(path.nodes, path.signs, path.start) for path in alone]


def test_a_knock_down_with_nothing_to_knock_down_keeps_its_gate(graph):
    basal = pd.DataFrame(1.0, index=["C"], columns=GENES)
    basal["G00"] = 0.0
    questions = pd.DataFrame({"context": "C", "perturbation": ["CRISPRi:G00"], "gene": [_reached(graph, "G00")]})
    lowered = Perturbation.genetic(["G00"], "CRISPRi")
    raised = Perturbation.genetic(["G00"], "CRISPRa")
    weights = []
    for item in (lowered, raised):
        table = questions.assign(perturbation=item.name)
        found = find_candidates(table, {item.name: item}, graph, gate=EXPRESSED, basal=basal)
        weights.append(found.paths(0)[0].weight)
    gate = float(EXPRESSED(np.array([0.0]))[0])
    assert weights[0] == pytest.approx(weights[1] * np.sqrt(gate), rel=1e-5)


def test_a_shut_gate_takes_the_paths_through_genes_that_are_off_and_no_others(graph, basal):
    questions, known = asked(), perturbations()
    options = {"k": 10_000, "gate": EXPRESSED, "basal": basal}
    whole, open_ = (find_candidates(questions, known, graph, **options, shut=shut) for shut in (False, True))
    taken = 0
    for row, (context, name, _) in enumerate(questions.itertuples(index=False)):
        gate = EXPRESSED(basal.loc[context])
        off = {gene for gene, value in zip(GENES, gate, strict=True) if value < 0.5}
        lowered = known[name].modality == "genetic" and min(known[name].signs.values()) < 0
        wanted = [
            one
            for one in listed(whole, row)
            if not off.intersection(one[0][1:-1]) and not (lowered and one[0][0] in off)
        ]
        assert listed(open_, row) == wanted
        taken += len(listed(whole, row)) - len(wanted)
    assert 0 < taken < len(whole)
    within = find_candidates(questions, known, graph, **options, shut=True, subnetwork=10**6)
    assert [listed(within, row) for row in range(len(questions))] == [
        listed(open_, row) for row in range(len(questions))
    ]


def _reached(graph, source):
    edges = graph.edges
    return edges.loc[edges["source"] == source, "target"].iloc[0]


def test_what_was_measured_reaches_no_candidate(graph, basal):
    questions = asked()
    rng = np.random.default_rng(2)
    labels = rng.choice(["up", "down", "no_change"], len(questions))
    options = {"gate": EXPRESSED, "basal": basal, "subnetwork": 12}
    first = find_candidates(questions.assign(outcome=labels), perturbations(), graph, **options)
    second = find_candidates(questions.assign(outcome=rng.permutation(labels)), perturbations(), graph, **options)
    for name in ("offsets", "edges", "start", "cost"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


def test_order_of_questions_and_what_else_is_asked_make_no_difference(graph, basal):
    questions = asked()
    whole = find_candidates(questions, perturbations(), graph, gate=EXPRESSED, basal=basal)
    some = questions.iloc[::-3]
    part = find_candidates(some, perturbations(), graph, gate=EXPRESSED, basal=basal)
    for row, place in enumerate(some.index):
        assert listed(part, row) == listed(whole, place)


def test_a_subnetwork_only_takes_paths_away(graph):
    questions, known = asked(), perturbations()
    whole = find_candidates(questions, known, graph, k=50)
    small = find_candidates(questions, known, graph, k=50, subnetwork=8)
    everything = find_candidates(questions, known, graph, k=50, subnetwork=10**6)
    assert 0 < len(small) < len(whole) == len(everything)
    for row in range(len(questions)):
        assert set(listed(small, row)) <= set(listed(whole, row))
        # Heat from both ends reaches every node of every path.
        assert listed(everything, row) == listed(whole, row)


def test_nothing_asked_has_no_paths(graph):
    found = find_candidates(asked().iloc[:0], perturbations(), graph)
    assert len(found) == 0
    assert found.conflict.shape == (0,)
    assert "0 paths for 0 of 0 questions" in repr(found)


# -- references ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opposed():
    """Return three questions of a lowered A: B says both, C one, D nothing that is known."""
    edges = pd.DataFrame(
        [("A", "B", 1), ("A", "M", -1), ("M", "B", 1), ("A", "C", -1), ("A", "D", 0)],
        columns=["source", "target", "sign"],
    )
    graph = SignedGraph.from_edges(edges, name="small")
    item = Perturbation.genetic(["A"], "CRISPRi")
    questions = pd.DataFrame({"context": "X", "perturbation": item.name, "gene": ["B", "C", "D"]})
    return find_candidates(questions, {item.name: item}, graph)


def references(found, outcomes, no_change="opposing"):
    kept = is_reference(found, outcomes, no_change=no_change)
    return [
        [
            path.nodes
            for path, keep in zip(found.paths(row), kept[slice(*found.offsets[row : row + 2])], strict=True)
            if keep
        ]
        for row in range(len(outcomes))
    ]


def test_references_are_the_candidates_that_say_what_was_measured(opposed):
    assert opposed.conflict.tolist() == [True, False, False]
    assert references(opposed, ["down", "up", "up"]) == [[("A", "B")], [("A", "C")], []]
    assert references(opposed, ["up", "down", "down"]) == [[("A", "M", "B")], [], []]
    assert references(opposed, [None, None, None]) == [[], [], []]


def test_what_does_not_change_is_explained_by_opposing_paths_or_by_none(opposed):
    unchanged = ["no_change"] * 3
    assert references(opposed, unchanged) == [[("A", "B"), ("A", "M", "B")], [], []]
    assert references(opposed, unchanged, no_change="none") == [[], [], []]
    with pytest.raises(InputError, match="opposing paths, or none"):
        is_reference(opposed, unchanged, no_change="some")


def test_votes_are_sums_of_weights(opposed):
    np.testing.assert_allclose(opposed.vote(-1), [0.5, 0.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(opposed.vote(1), [0.25, 0.5, 0.0], rtol=1e-6)
    assert opposed.count(0).tolist() == [0, 0, 1]


def test_the_text_tells_the_cheapest_reference_edge_by_edge(opposed):
    both = opposed.paths(0)
    assert reference_text("CRISPRi:A", "B", "down", both[:1]) == (
        "CRISPRi:A: it lowers A, and A activates B, so B goes down."
    )
    assert reference_text("CRISPRi:A", "B", "up", [both[1], both[1]]) == (
        "CRISPRi:A: it lowers A, and A inhibits M, M activates B, so B goes up. 1 more path says the same."
    )
    assert reference_text("CRISPRi:A", "B", "no_change", both) == (
        "CRISPRi:A: it lowers A, and A inhibits M, M activates B, which raises B; but it lowers A, and A activates B, "
        "which lowers B. The two oppose each other, so B does not change."
    )
    assert reference_text("CRISPRi:A", "B", "up", []) == ""
    assert reference_text("CRISPRi:A", "B", None, both) == ""
