"""What the words of a report mean, one line each: the same in a terminal and on the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["ADAPTERS", "TERMS", "adapters_told"]

TERMS: Mapping[str, str] = {
    "Balanced accuracy (BA)": "the mean of the recalls of up, down and no_change; a third is chance.",
    "Difference needed": "how far apart in balanced accuracy two baselines must be for this fold to tell them apart in "
    "four of five repetitions. Worked out from the two priors (a gene's most frequent outcome in train, and the same "
    "with outcomes balanced); other pairs may need more.",
    "AUROC": "called: up or down against no_change; direction: up against down. The mean over readout genes of each "
    "gene's own, in which a prior over genes is worth nothing; a half is chance.",
}
"""Word -> meaning, of those that the head of a column cannot say."""

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
