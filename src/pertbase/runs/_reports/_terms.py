"""What the words of a report mean, one line each: the same in a terminal and on the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = [
    "ADAPTERS",
    "APART_NOTES",
    "LEGEND",
    "POWER",
    "REASON_NOTES",
    "TERMS",
    "UNANSWERED",
    "adapters_told",
    "legend",
]

UNANSWERED = "unanswered"
"""The column that stands beside coverage where some questions have no outcome."""


TERMS: Mapping[str, str] = {
    "Balanced accuracy (BA)": "the mean of the recalls of up, down and no_change; a third is chance.",
    "Difference needed": "how far apart in balanced accuracy two baselines must be for this fold to tell them apart in "
    "four of five repetitions. Worked out from the two priors (a gene's most frequent outcome in train, and the same "
    "with outcomes balanced); other pairs may need more.",
    "AUROC": "called: up or down against no_change; direction: up against down. The mean over readout genes of each "
    "gene's own, in which a prior over genes is worth nothing; a half is chance.",
}
"""Word -> meaning, of those that the head of a column cannot say."""

LEGEND: Mapping[str, str] = {
    "replicate ceiling": "what a perfect replicate of the screen would score, modelled from halves of its cells",
    "macro F1": "the plain mean of F1 over up, down and no_change",
    "ambiguous": "questions between change and no change, out of all other columns: how often the higher score of up "
    "and down agrees with the effect; a half is chance",
    "coverage": "share of questions that the baseline can speak to, whether or not it answered them; the others are "
    "answered no_change",
    UNANSWERED: "share of questions without an outcome (no answer, refused, cut off, not understood): each is wrong",
    "supported BA": "balanced accuracy over the questions that coverage counts",
}
"""Row or column of a fold's table -> meaning, told below the first one and on the page."""

POWER = "over test's conditions and their genes, how likely a true effect of the rule's size would be significant"
"""What a certificate's power is."""

REASON_NOTES = (
    (
        "best path: F1 with the single reference it fits best; connected: leads from what is perturbed to the readout "
        "gene; on path: share of triplets on such a way; consistent: implies the answer; in graph, in prompt: share of "
        "triplets that the graph, or the paths that were shown, bear out; GO: how alike by gene sets the genes in "
        "between are"
    ),
    "over questions with a change and a reference; F1 is signed: a triplet with the wrong sign is wrong; no reason: 0",
    "over ...: F1 less what it is with permuted labels, in a degree-preserving rewired graph, in another context",
    (
        "controls have the true outcome and, but for the reference itself, a reason that knows nothing: what they "
        "score, a score can be had for"
    ),
    "n: questions behind the row, with a reason or without; F1: of precision and edge recall",
    "precision: share of a reason's triplets that are in the reference; edge recall: share of the reference's in it",
)
"""Below the table of reasons' scores."""

APART_NOTES = (
    "consistent: a reason agrees with no_change where it leads nowhere, or to both up and down",
    "F1 is over questions with a reference",
)
"""Below the table of questions that stand apart."""

ADAPTERS: Mapping[str, str] = {
    "fixed": "one threshold on every effect, answers as they are",
    "calibrated": "thresholds of the highest balanced accuracy on val",
    "prior_matched": "thresholds that answer up and down as often as val holds them",
    "rank_test": "predicted cells tested against controls, with a least effect",
}
"""Adapter -> what it does."""


def adapters_told(names: Collection[str]) -> str:
    """Return one sentence on the adapters of some names; others, of a user's own, are not explained."""
    known = [name for name in ADAPTERS if name in names]
    return "turn effects or scores into outcomes. " + "; ".join(f"{name}: {ADAPTERS[name]}" for name in known) + "."


def legend(shown: Collection[str]) -> list[str]:
    """Return a line for each row or column that is shown and has a meaning to be told."""
    return [f"{word}: {meaning}" for word, meaning in LEGEND.items() if word in shown]
