"""Rewards: no game earns what an honest reason does, the sums by hand, and what must hold for every reply."""

from __future__ import annotations

import json
from itertools import combinations, product

import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pertbase.baselines.finetuned._rewards import SHARES, Asked, Reward, Rewards, RewardSettings
from pertbase.baselines.llm import parse
from pertbase.errors import InputError, PertbaseError
from pertbase.knowledge import SignedGraph, Triplet, relation_sign

Signed = tuple[str, int, str]
WORDS = {1: "activates", -1: "inhibits", 0: "affects"}

# The reference of three edges that strategies are tried on: A is lowered, so D goes down.
GOLD: list[Signed] = [("A", -1, "B"), ("B", -1, "C"), ("C", 1, "D")]
CONTEXT = [*GOLD, ("B", 1, "C"), ("A", 1, "B"), ("E", -1, "D"), ("A", 1, "E")]


def told(triplets, outcome: str = "down") -> str:  # type: ignore[no-untyped-def]
    """Return a reply in the form that is asked for."""
    return json.dumps({"triplets": [[head, WORDS[sign], tail] for head, sign, tail in triplets], "answer": outcome})


def path(triplets) -> tuple[Triplet, ...]:  # type: ignore[no-untyped-def]
    return tuple(Triplet(head, WORDS[sign], tail) for head, sign, tail in triplets)


def net(edges) -> SignedGraph:  # type: ignore[no-untyped-def]
    return SignedGraph.from_edges(pd.DataFrame(edges, columns=["source", "sign", "target"]), name="net")


def rewarded(*texts: str, question: Asked | None = None, graph=None, finish: str = "stop", **how) -> list[Reward]:  # type: ignore[no-untyped-def]
    asked = question or Asked("down", "D", (("A", -1),), (path(GOLD),), (path(CONTEXT),))
    made = Rewards({"q": asked}, RewardSettings(**how), graph=graph)
    return made(["q"] * len(texts), [parse(text, finish=finish) for text in texts])


HALF = {
    "two of three edges": told(GOLD[:2]),
    "one of three edges": told(GOLD[:1]),
    "one edge with the wrong sign": told([*GOLD[:2], ("C", -1, "D")]),
}
"""Honest replies with the right answer and about half of the reason: a little more of it, and a little less."""


def backwards(triplets) -> list[Signed]:  # type: ignore[no-untyped-def]
    return [(tail, sign, head) for head, sign, tail in triplets]


GAMES = {
    "all context copied": told(CONTEXT),
    "both signs on each edge": told([*GOLD, *((head, -sign, tail) for head, sign, tail in GOLD)]),
    "every edge activates": told([(head, 1, tail) for head, _, tail in GOLD]),
    "an invented direct edge": told([("A", 1, "D")]),
    "reversed": told(backwards(GOLD)),
    "both directions of each edge": told([*GOLD, *backwards(GOLD)]),
    "both directions, and the other sign": told([*GOLD, *((tail, -sign, head) for head, sign, tail in GOLD)]),
    "every edge affects": told([(head, 0, tail) for head, _, tail in GOLD]),
    "every edge affects as well": told([*GOLD, *((head, 0, tail) for head, _, tail in GOLD)]),
    "all context affects": told([(head, 0, tail) for head, _, tail in CONTEXT]),
    "a word that nobody knows beside each": json.dumps(
        {"triplets": [*map(list, path(GOLD)), *([a, "modulates-ish", b] for a, _, b in GOLD)], "answer": "down"}
    ),
    "all that leaves the target": told([("A", -1, "B"), ("A", 1, "E"), ("A", 1, "C")]),
    "all that meets the readout gene": told([("C", 1, "D"), ("E", -1, "D")]),
    "the path that was shown for the other answer": told(CONTEXT[-1:] + CONTEXT[-2:-1]),
    "both paths that were shown": told([*GOLD, *CONTEXT[-2:]]),
    "everything acts on everything, as complexes": json.dumps(
        {"triplets": [["A:B:C:E", "inhibits", "B:C:D:E"]], "answer": "down"}
    ),
    "the question as its own reason": told([("A", -1, "D")]),
    "other genes": told([("X", -1, "Y"), ("Y", -1, "Z"), ("Z", 1, "D")]),
    "genes on themselves": told([(gene, 1, gene) for gene in "ABCD"]),
    "a flood of words": told(GOLD[:1]) + " and so on" * 5_000,
    "the right reason of another answer": told(GOLD, "up"),
    "no reason": told([]),
    "endless triplets": told([*GOLD, *((f"G{n}", 1, f"G{n + 1}") for n in range(200))]),
    "endless triplets of the graph": told([*CONTEXT, *product("ABCDE", (1, -1), "ABCDE")]),
    "every answer at once": json.dumps(
        {"triplets": [list(one) for one in path(GOLD)], "answer": "up, down or no_change"}
    ),
    "one reply an answer": "\n".join(told(GOLD, outcome) for outcome in ("up", "down", "no_change")),
    "the form alone": told([], "up"),
    "the prompt back": "down, up or no_change",
}


@pytest.mark.parametrize("graph", [None, net(CONTEXT)], ids=["no graph", "graph"])
@pytest.mark.parametrize("game", GAMES)
def test_no_game_earns_what_an_honest_reply_does(game, graph) -> None:  # type: ignore[no-untyped-def]
    gold, *half, gamed = rewarded(told(GOLD), *HALF.values(), GAMES[game], graph=graph)
    assert gold == Reward(1.0, 1.0, 1.0, 1.0)
    assert all(one.total < gold.total for one in half)
    assert all(gamed.total < one.total for one in half)


def test_one_true_triplet_again_and_again_is_one_triplet() -> None:
    spelled = [["A", "inhibits", "B"], ["a", "represses", "b"], ["A protein", "down-regulates", "B gene"]]
    once, often, otherwise = rewarded(
        told(GOLD[:1]), told(GOLD[:1] * 50), json.dumps({"triplets": spelled * 9, "answer": "down"})
    )
    assert once == often == otherwise


@pytest.mark.parametrize("unsure", [some for n in (1, 2) for some in combinations(GOLD, n)])
def test_an_edge_in_both_directions_earns_less_than_one_left_out(unsure) -> None:  # type: ignore[no-untyped-def]
    both, without = rewarded(told([*GOLD, *backwards(unsure)]), told([edge for edge in GOLD if edge not in unsure]))
    assert both.total < without.total


def test_both_directions_count_where_the_references_have_them() -> None:
    ways = [GOLD, [("A", 1, "C"), ("C", -1, "B"), ("B", 1, "D")]]
    references = tuple(map(path, ways))
    question = Asked("down", "D", (("A", -1),), references, references)
    both, one = rewarded(told([edge for way in ways for edge in way]), told(GOLD), question=question)
    assert (both.triplets, one.triplets) == (1, pytest.approx(2 * 3 / (3 + 6)))


def _way(number: int) -> list[Signed]:
    """Return one of several ways from A to D that share no edge."""
    return [("A", -1, f"B{number}"), (f"B{number}", -1, f"C{number}"), (f"C{number}", 1, "D")]


WAYS = [_way(number) for number in range(4)]
PIECES = {
    "their last edges": [way[2] for way in WAYS],
    "their first edges": [way[0] for way in WAYS],
    "the first and last edges, and no middle": [edge for way in WAYS for edge in (way[0], way[2])],
    "all middles": [way[1] for way in WAYS],
    "beginnings of some and ends of others": [*WAYS[0][:2], *WAYS[1][:2], WAYS[2][2], WAYS[3][2]],
    "one whole way, and last edges of the others": [*WAYS[0], *(way[2] for way in WAYS[1:])],
    "one whole way, and one edge of another": [*WAYS[0], WAYS[1][0]],
}
"""What leads nowhere, put together from several references."""


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("ways", [2, 3, 4])
def test_pieces_of_several_references_earn_less_than_one_whole_path(pieces, ways) -> None:  # type: ignore[no-untyped-def]
    references = tuple(map(path, WAYS[:ways]))
    question = Asked("down", "D", (("A", -1),), references, (*references, path(CONTEXT)))
    whole = [told([edge for way in WAYS[:number] for edge in way]) for number in range(1, ways + 1)]
    *honest, gamed = rewarded(*whole, told(PIECES[pieces]), question=question)
    # An honest path has the primary score, and two are worth more than one.
    assert [one.triplets for one in honest] == pytest.approx([2 * n / (n + ways) for n in range(1, ways + 1)])
    assert gamed.total < honest[0].total


def test_what_is_cut_off_earns_nothing() -> None:
    whole = told(GOLD * 100)
    (found,) = rewarded(whole[: len(whole) // 2], finish="length")
    assert found == Reward(0.0, 0.0, 0.0, 0.0)


def test_a_wrong_answer_with_the_right_reason_lies_between() -> None:
    gold, wrong, nothing = rewarded(told(GOLD), told(GOLD, "up"), told([], "up"))
    assert (wrong.outcome, wrong.triplets) == (0.0, 1.0)
    assert nothing.total < wrong.total < gold.total


def test_opposing_paths_are_the_reason_of_no_change_and_both_signs_are_not() -> None:
    pair = [*GOLD, ("A", -1, "E"), ("E", 1, "D")]
    both = [*pair, *((head, -sign, tail) for head, sign, tail in pair)]
    paths = (path(GOLD), path(pair[3:]))
    question = Asked("no_change", "D", (("A", -1),), paths, paths)
    replies = [told(one, "no_change") for one in (pair, GOLD, both)]
    gold, half, gamed = (one.total for one in rewarded(*replies, question=question))
    assert gold == 1
    assert gamed < half < gold
    # Of a direction it is none: two ways to the readout gene, with two signs, one of which the reference does not have.
    (found,) = rewarded(told(pair), question=Asked("down", "D", (("A", -1),), paths[:1], paths))
    assert found.triplets == 0


def test_two_signs_on_one_pair_are_no_claim() -> None:
    """Though the graph has both, and neither leads to the readout gene."""
    both, one = rewarded(told([("A", -1, "B"), ("A", 1, "B")]), told([("A", -1, "B")]))
    assert (both.triplets, one.triplets) == (0, 0.5)


def test_without_a_reference_the_reason_does_not_count() -> None:
    question = Asked("no_change", "D", (("A", -1),))
    right, padded, wrong = rewarded(
        told([], "no_change"), told(CONTEXT, "no_change"), told([], "up"), question=question
    )
    # A right answer earns as much as one to a question with a reference, and no more.
    assert right == padded == Reward(1.0, None, 1.0, pytest.approx(1.1 / 2.1))
    assert wrong.total == pytest.approx(0.1 / 2.1)
    (bare,) = rewarded(told([]))
    assert bare.total == right.total
    (alone,) = rewarded(told([]), question=question, outcome=0, format=0)
    assert alone.total is None


def test_the_reward_is_the_weighted_sum_of_its_shares() -> None:
    (half,) = rewarded("```json\n" + told(GOLD[:2]) + "\n```\nSo it is.", outcome=3, triplets=2, format=1)
    assert (half.outcome, half.format) == (1, 0)
    assert half.triplets == pytest.approx(2 * 2 / (2 + 3))
    assert half.total == pytest.approx((3 + 2 * half.triplets) / 6)


def test_names_and_restated_compounds_count_as_scorers_count_them() -> None:
    drug = Asked("down", "D", (("A", -1),), (path(GOLD),), (path(GOLD),), ("trametinib",))
    restated = json.dumps(
        {"triplets": [["Trametinib", "inhibits", "A"], *(list(one) for one in path(GOLD))], "answer": "down"}
    )
    spelled = told([(head.lower(), sign, f"{tail} protein") for head, sign, tail in GOLD])
    assert [one.total for one in rewarded(restated, spelled, question=drug)] == [1, 1]


def test_more_triplets_than_may_be_are_no_reason() -> None:
    assert [rewarded(told(GOLD), most_triplets=most)[0].triplets for most in (3, 2)] == [1, 0]


@pytest.mark.parametrize(
    ("how", "key"),
    [
        ({"outcome": -1}, "rewards.outcome"), ({"format": float("nan")}, "rewards.format"),
        (dict.fromkeys(SHARES, 0), "rewards"), ({"grounded": 2}, "rewards.grounded"),
        ({"most_triplets": 0}, "rewards.most_triplets"), ({"outcom": 1}, "outcom"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(how, key) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=key):
        RewardSettings.from_config(how)


# -- what must hold for every reply ---------------------------------------------------------------------------

NODES = "ABCDE"
TRIPLETS = st.tuples(st.sampled_from(NODES), st.sampled_from([-1, 0, 1]), st.sampled_from(NODES))
REASONS = st.lists(TRIPLETS, max_size=10)
PATHS = st.lists(st.lists(TRIPLETS, min_size=1, max_size=4), max_size=3)
ANSWERS = st.sampled_from(["up", "down", "no_change", "", "up or down"])
QUESTIONS = st.builds(
    lambda outcome, references, shown, sign: Asked(
        outcome, "E", (("A", sign),), tuple(map(path, references)), tuple(map(path, shown))
    ),
    st.sampled_from(["up", "down", "no_change"]), PATHS, PATHS, st.sampled_from([-1, 1]),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(REASONS, ANSWERS, QUESTIONS, st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_change_a_reward(claimed, answer, question, rng) -> None:  # type: ignore[no-untyped-def]
    again = claimed + ([rng.choice(claimed)] if claimed else [])
    rng.shuffle(again)
    first, second = rewarded(told(claimed, answer), told(again, answer), question=question)
    assert first == second


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), st.builds(told, REASONS, ANSWERS)), QUESTIONS, st.lists(TRIPLETS, min_size=1))
def test_every_share_is_from_0_to_1(text, question, edges) -> None:  # type: ignore[no-untyped-def]
    edges = [one for one in edges if one[0] != one[2]]
    (found,) = rewarded(text, question=question, graph=net(edges) if edges else None)
    assert all(0 <= getattr(found, name) <= 1 for name in ("outcome", "format", "total"))
    assert found.triplets is None or 0 <= found.triplets <= 1
    assert (found.triplets is None) == (not any(one.head != one.tail for way in question.references for one in way))


def by_hand(claimed, answer, question: Asked, edges, most: int = 12, grounded: float = 0.5):  # type: ignore[no-untyped-def]
    """Return the share of a reason by sets, as somebody who never saw ours would write it."""
    right = {(one.head, relation_sign(one.relation), one.tail) for way in question.references for one in way}
    shown = {(one.head, relation_sign(one.relation), one.tail) for way in question.given or () for one in way}
    own, right, shown = ({one for one in side if one[0] != one[2]} for side in (set(claimed), right, shown))
    if not right:
        return None

    def borne(among) -> float:  # type: ignore[no-untyped-def]
        there = {(head, tail): {sign for a, sign, b in among if (a, b) == (head, tail)} for head, _, tail in among}
        hits = [
            pair in there and (sign == 0 or sign in there[pair] or 0 in there[pair])
            for pair, sign in (((head, tail), sign) for head, sign, tail in own)
        ]
        return sum(hits) / len(hits)

    def ways(claims) -> set[int]:  # type: ignore[no-untyped-def]
        reached, before = {("A", question.targets[0][1])}, set()
        while reached != before:
            before = set(reached)
            reached |= {(tail, sign * how) for head, sign, tail in claims for node, how in before if node == head}
        return {sign for node, sign in reached if node == "E"}

    def walked(claims):  # type: ignore[no-untyped-def]
        def closed(begun, edges) -> set[str]:  # type: ignore[no-untyped-def]
            for _ in NODES:
                begun = begun | {tail for head, tail in edges if head in begun}
            return begun

        from_target = closed({"A"}, [(head, tail) for head, _, tail in claims])
        to_readout = closed({"E"}, [(tail, head) for head, _, tail in claims])
        return {one for one in claims if one[0] in from_target and one[2] in to_readout}

    if (
        answer not in ("up", "down", "no_change")
        or not own
        or len(own) > most
        or len({(head, tail) for head, _, tail in own}) < len(own)
        or (len(ways(own)) > 1 and ways(own) - ways(right))
        or max(borne(among) for among in (shown, right, edges)) < grounded
    ):
        return 0.0
    each = [{(one.head, relation_sign(one.relation), one.tail) for one in way} for way in question.references]
    n_right = len(right)
    pairs, known = ({(head, tail) for head, _, tail in side} for side in (own, right))
    right = {one for one in right if (one[2], one[0]) not in pairs or (one[2], one[0]) in known}
    counted = max(len(side & own & right) for side in (walked(own), *each))
    return 2 * counted / (len(own) + n_right)


@settings(max_examples=200, deadline=None)
@given(REASONS, ANSWERS, QUESTIONS, st.lists(TRIPLETS, min_size=1, max_size=8))
def test_the_share_of_a_reason_is_the_one_by_hand(claimed, answer, question, edges) -> None:  # type: ignore[no-untyped-def]
    # A graph has one sign a pair.
    edges = list({(head, tail): (head, sign, tail) for head, sign, tail in edges if head != tail}.values())
    (found,) = rewarded(told(claimed, answer), question=question, graph=net(edges) if edges else None)
    assert found.triplets == pytest.approx(by_hand(claimed, answer, question, set(edges)))


@settings(max_examples=150, deadline=None)
@given(REASONS, ANSWERS, QUESTIONS)
def test_a_reason_that_says_no_direction_earns_nothing(claimed, answer, question) -> None:  # type: ignore[no-untyped-def]
    told_of = {(one.head, one.tail) for way in question.references for one in way if one.head != one.tail}
    assume(not any((tail, head) in told_of for head, tail in told_of))
    (found,) = rewarded(told([*claimed, *backwards(claimed)], answer), question=question)
    assert not found.triplets


def test_a_question_that_was_not_asked_is_an_error() -> None:
    made = Rewards({}, RewardSettings())
    with pytest.raises((KeyError, PertbaseError)):
        made(["q"], [parse(told(GOLD))])
