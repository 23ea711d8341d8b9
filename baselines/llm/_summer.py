"""SUMMER: summarise what is known of the genes, retrieve outcomes near the question, answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pertbase.baselines.base import sets_of
from pertbase.baselines.llm._baseline import LanguageModel
from pertbase.baselines.llm._clients._base import Client, Request
from pertbase.baselines.llm._prompts import read_template
from pertbase.baselines.llm._record import Encoder, Record, in_words
from pertbase.baselines.llm._retrieval import Retrieval
from pertbase.baselines.simple._common import fitted
from pertbase.errors import InputError
from pertbase.folds import Inputs, Training
from pertbase.knowledge import GeneSets

__all__ = ["Summer"]

_MOST_SETS = 8
_WORDS = {"up": "went up", "down": "went down", "no_change": "did not change"}


class Summer(LanguageModel):
    """A language model that is told what genes do, and what was measured near the question.

    As the paper has it: for each gene, a summary by the model of the gene sets that it is in (smallest first, eight at
    most); for each question, training outcomes in the order of :data:`~pertbase.baselines.llm.TIERS`; then the
    question. Its authors' own pipeline is not public as a whole, so that prompts and gene sets are ours. Outcomes are
    retrieved from train alone: val stays held out.

    Parameters
    ----------
    n_retrieved
        Training outcomes shown with a question.
    n_near
        Near perturbations, and near genes, at most.
    summaries
        Whether the model summarises gene sets; else their names are given.
    gene_sets
        A name or file, see :func:`pertbase.knowledge.gene_sets`. Not given: those the data set brings, else
        ``GO_Biological_Process_2023``.
    **options
        Those of :class:`~pertbase.baselines.llm.LanguageModel`, but for presets, paths and examples: what is retrieved
        stands in their place.
    """

    def __init__(
        self,
        *,
        client: Client,
        template: str | None = None,
        n_retrieved: int = 10,
        n_near: int = 10,
        summaries: bool = True,
        gene_sets: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(client=client, template=None, **options)
        if n_retrieved < 1:
            raise InputError("is at least one", key="n_retrieved", value=n_retrieved)
        self.template = template
        self.n_retrieved = n_retrieved
        self.n_near = n_near
        self.summaries = summaries
        self.gene_sets = gene_sets
        self.preset = "summer"
        self._template = read_template(template, "summer")
        self._encoder = Encoder(preset="no_path")
        self._retrieval: Retrieval | None = None
        self._sets: GeneSets = {}
        self._words: dict[str, str] = {}
        self._seed = 0

    def refuses(self, training: Training) -> str | None:
        """Refuse where the client cannot be used here, or train has no outcome to retrieve."""
        known = (training.headline["split"] == "train").any()
        return super().refuses(training) or (None if known else f"{training.fold} has no training outcome to retrieve")

    def fit(self, training: Training) -> Summer:
        """Keep the outcomes of train, and the gene sets."""
        super().fit(training)
        self._sets = sets_of(training, self.gene_sets)
        self._retrieval = Retrieval(training.part("train"), self._sets, n_near=self.n_near)
        self._words = {name: in_words(item) for name, item in training.perturbations.items()}
        self._seed = training.seed
        return self

    def records(self, inputs: Inputs) -> list[Record]:
        """Return what each question says, with what was retrieved and summaries of its genes, which are asked for."""
        found = fitted(self._retrieval, self)
        records = super().records(inputs)
        told = self._told({gene for record in records for gene in self._genes(record)})
        made = []
        names = inputs.questions["perturbation"].astype(str)
        for record, name in zip(records, names, strict=True):
            near = found.examples(
                record.context, inputs.perturbations[name], record.gene, self.n_retrieved, seed=self._seed
            )
            lines = (f"- {self._words[one.perturbation]}: {one.gene} {_WORDS[one.outcome]}" for one in near)
            known = "; ".join(told[gene] for gene in self._genes(record))
            made.append(replace(record, summaries=known, retrieved="\n".join(lines)))
        return made

    @staticmethod
    def _genes(record: Record) -> list[str]:
        return list(dict.fromkeys([*(gene for gene, _ in record.targets), record.gene]))

    def _told(self, genes: set[str]) -> dict[str, str]:
        """Return what is said of each gene: the model's summary, else the names of its sets."""
        known = self._names_of_sets(genes)
        told = {
            gene: f"{gene}: {', '.join(sets)}" if sets else f"{gene}: in no gene set" for gene, sets in known.items()
        }
        asked = [gene for gene, sets in sorted(known.items()) if sets] if self.summaries else []
        requests = [
            Request("reply", (self._template.summary(gene, known[gene]),), f"summary of {gene}", prose=True)
            for gene in asked
        ]
        for gene, response in zip(asked, self.ask(requests) if requests else [], strict=True):
            # A summary that was cut off ends in mid-sentence, and says something all the same.
            if response.text.strip():
                told[gene] = " ".join(response.text.split())
        return told

    def _names_of_sets(self, genes: set[str]) -> dict[str, Sequence[str]]:
        found: dict[str, list[str]] = {gene: [] for gene in genes}
        for name, members in sorted(self._sets.items(), key=lambda item: (len(item[1]), item[0])):
            for gene in genes.intersection(members):
                if len(found[gene]) < _MOST_SETS:
                    found[gene].append(name)
        return {gene: tuple(sets) for gene, sets in found.items()}
