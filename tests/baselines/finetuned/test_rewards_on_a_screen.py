"""Rewards on the simulated screen: games against honest halves, and twenty rewards worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from pertbase.baselines.finetuned._rewards import Asked, Rewards, RewardSettings
from pertbase.baselines.llm import parse
from pertbase.folds import FoldSpec, Training
from pertbase.knowledge import Triplet, relation_sign
from pertbase.knowledge._walks import LOWERED, RAISED, reach

Signed = tuple[str, int, str]
WORDS = {1: "activates", -1: "inhibits", 0: "affects"}


@pytest.fixture(scope="module")
def training(maker) -> Training:  # type: ignore[no-untyped-def]
    fold = maker.make(FoldSpec.from_dict({"kind": "combinatorial", "paths": {"hops": 3, "k": 5}}))
    return fold.make_training(seed=0, cells=False)


def told(triplets, outcome: str) -> str:  # type: ignore[no-untyped-def]
    """Return a reply in the form that is asked for."""
    return json.dumps({"triplets": [[head, WORDS[sign], tail] for head, sign, tail in triplets], "answer": outcome})


def backwards(triplets) -> list[Signed]:  # type: ignore[no-untyped-def]
    return [(tail, sign, head) for head, sign, tail in triplets]


def signed(ways) -> list[Signed]:  # type: ignore[no-untyped-def]
    """Return the edges of some paths, each once."""
    return list(dict.fromkeys((head, relation_sign(word), tail) for way in ways for head, word, tail in way))


def test_on_a_screen_games_earn_less_than_half_of_the_reason(training: Training) -> None:
    """Over training questions whose candidate paths are more than the reference."""
    table = training.questions
    table = table.loc[table["outcome"].isin(["up", "down"])]
    often = table["outcome"].mode().item()
    edges = training.graph.edges
    near = {side: edges.groupby(side).indices for side in ("source", "target")}
    asked, said, right = {}, {}, {}
    for _, row in table.iterrows():
        ways, given = list(row["reference_paths"]), list(row["candidate_paths"])
        gold, shown = signed(ways), signed(given)
        if len(gold) < 2 or set(gold) == set(shown):
            continue
        targets = tuple(training.perturbations[row["perturbation"]].signs.items())
        paths = [tuple(tuple(Triplet(*edge) for edge in way) for way in side) for side in (ways, given)]
        asked[row["id"]] = Asked(row["outcome"], row["gene"], targets, *paths)
        out = np.concatenate([near["source"].get(gene, []) for gene, _ in targets])
        into = near["target"].get(row["gene"], [])
        around = [
            list(edges.iloc[list(map(int, rows[:12]))][["source", "sign", "target"]].itertuples(index=False, name=None))
            for rows in (out, into)
        ]
        # Half of the paths, or of the one there is, rounded down: edges drawn from all are pieces that lead nowhere.
        half = signed(ways[: len(ways) // 2] or [ways[0][: len(gold) // 2]])
        told_of = {
            "gold": gold, "half": half, "copied": shown, "reversed": backwards(gold), "empty": [],
            "both directions": [*gold, *backwards(gold)], "affects": [(head, 0, tail) for head, _, tail in gold],
            "both signs": [*gold, *((head, -sign, tail) for head, sign, tail in gold)],
            "activates": [(head, 1, tail) for head, _, tail in gold], "invented": [(targets[0][0], 1, row["gene"])],
            "hub": around[0], "into": around[1], "first, commonest": signed(given[:1]),
        }  # fmt: skip
        right[row["id"]] = {name: len({*one} & {*gold}) for name, one in told_of.items()}
        said[row["id"]] = {
            name: parse(told(one, often if "commonest" in name else row["outcome"])) for name, one in told_of.items()
        }
    rewards = Rewards(asked, RewardSettings(), graph=training.graph)
    ids = list(asked)
    assert len(ids) > 50
    totals = pd.DataFrame(
        {name: [one.total for one in rewards(ids, [said[id_][name] for id_ in ids])] for name in said[ids[0]]}, ids
    )
    hits = pd.DataFrame.from_dict(right, orient="index").loc[ids]
    assert (totals["gold"] == 1).all()
    assert (totals["half"] < 1).all()
    less = totals.lt(totals["half"], axis=0)
    assert less[["both signs", "both directions", "reversed", "affects", "empty"]].all(axis=None)
    # What is copied leads both ways; only where the references do as well can it be told from them by no walk.
    held = rewards.reasons(list(asked.values()), [said[id_]["gold"] for id_ in ids])
    one_way = np.isin(reach(held.references.union, held.starts).signs, (RAISED, LOWERED))
    assert one_way.mean() > 0.95
    assert less.loc[one_way, "copied"].all()
    for name in ("activates", "invented", "hub", "into", "first, commonest"):
        # A guess may happen to hold as much of the reference as half of it.
        assert less.loc[hits[name] < hits["half"], name].all(), name
    for name in ("copied", "activates", "invented", "hub", "into", "first, commonest"):
        assert totals[name].mean() < totals["half"].mean(), name


def by_hand(claimed, outcome, form, row, starts, edges) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    """Return share of the reason and reward, with pen and paper: plain sets, and every walk followed."""
    own = {one for one in claimed if one[0] != one[2]}
    ways = [set(signed([way])) for way in row["reference_paths"]]
    right, shown = set().union(*ways), set(signed(row["candidate_paths"]))

    def ends(among) -> set[int]:  # type: ignore[no-untyped-def]
        seen, new = set(), set(starts)
        while new:
            seen |= new
            new = {(b, how * sign) for a, sign, b in among for node, how in seen if node == a} - seen
        return {how for node, how in seen if node == row["gene"]}

    def behind(nodes, pairs) -> set[str]:  # type: ignore[no-untyped-def]
        for _ in pairs:
            nodes = nodes | {b for a, b in pairs if a in nodes}
        return nodes

    def borne(among) -> float:  # type: ignore[no-untyped-def]
        there = [any(a == x and b == y and (s == t or not s or not t) for x, t, y in among) for a, s, b in own]
        return sum(there) / len(there)

    pairs = {(a, b) for a, _, b in own}
    refused = (
        not own or len(own) > 12 or len(pairs) < len(own) or max(map(borne, (right, shown, edges))) < 0.5
        or (len(ends(own)) > 1 and not ends(own) <= ends(right))
    )  # fmt: skip
    share = 0.0
    if not refused:
        begun = behind({node for node, _ in starts}, pairs)
        led = behind({row["gene"]}, {(b, a) for a, b in pairs})
        hits = {one for one in own & right if (one[2], one[0]) not in pairs}
        walked = {one for one in hits if one[0] in begun and one[2] in led}
        share = 2 * max(len(walked), *(len(hits & way) for way in ways)) / (len(own) + len(right))
    return share, (float(outcome == row["outcome"]) + share + 0.1 * form) / 2.1


def test_twenty_random_replies_are_rewarded_as_by_hand(training: Training) -> None:
    rng = np.random.default_rng(0)
    table = training.questions
    table = table.loc[(table["reference_paths"].map(len) > 0) & table["outcome"].isin(["up", "down"])]
    long = table.loc[[len(signed(paths)) > 2 for paths in table["reference_paths"]]]
    some = long.sample(10, random_state=0)
    rows = pd.concat([some, table.drop(some.index).sample(10, random_state=0)])
    graph = training.graph.edges
    edges = set(graph[["source", "sign", "target"]].itertuples(index=False, name=None))
    asked, replies, expected = {}, [], []
    for number, (_, row) in enumerate(rows.iterrows()):
        starts = tuple(training.perturbations[row["perturbation"]].signs.items())
        paths = [
            tuple(tuple(Triplet(*edge) for edge in way) for way in row[name])
            for name in ("reference_paths", "candidate_paths")
        ]
        asked[row["id"]] = Asked(row["outcome"], row["gene"], starts, *paths)
        gold = signed(row["reference_paths"])
        pool = [*gold, *signed(row["candidate_paths"]), *backwards(gold[:1]), *graph.sample(3, random_state=number)[
            ["source", "sign", "target"]].itertuples(index=False, name=None)]  # fmt: skip
        drawn = [pool[place] for place in rng.integers(0, len(pool), rng.integers(0, 7))]
        claimed = [(head, sign if rng.random() < 0.9 else -sign, tail) for head, sign, tail in drawn]
        if number % 3:
            claimed = [*gold[: rng.integers(0, len(gold) + 1)], *claimed[: rng.integers(0, 3)]]
        outcome, form = str(rng.choice(["up", "down", "no_change"])), bool(rng.random() < 0.7)
        replies.append(parse(told(claimed, outcome) + ("" if form else "\nThat is all.")))
        expected.append(by_hand(claimed, outcome, form, row, starts, edges))
    found = Rewards(asked, RewardSettings(), graph=training.graph)(list(asked), replies)
    assert len(found) == 20
    assert len({round(share, 6) for share, _ in expected}) >= 5
    assert [(one.triplets, one.total) for one in found] == [pytest.approx(one, abs=1e-12) for one in expected]
