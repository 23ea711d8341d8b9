"""A language model as a baseline: it is asked each question of a fold, with or without paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from pertbase.baselines.base import AnswerBaseline
from pertbase.baselines.llm._asking._ask import Asker
from pertbase.baselines.llm._asking._settings import AskSettings
from pertbase.baselines.llm._clients._base import Client, Request, Response, Sampling
from pertbase.baselines.llm._option_scores import letter_scores, likeliest, mean_scores, vote_shares
from pertbase.baselines.llm._parsing._parse import Parsed, parse, self_consistent
from pertbase.baselines.llm._parsing._replies import place_in_reply, read_reply
from pertbase.baselines.llm._prompts import Messages, Template, option_orders, read_template
from pertbase.baselines.llm._record import Encoder, Example, Paths, Record, example_questions
from pertbase.errors import InputError, unknown_name
from pertbase.folds import OUTCOMES, SCORES, Answers, Inputs, Training

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LanguageModel"]

_SOURCES = ("text", "options")
_AFTER = ("prompt", "reason")


class LanguageModel(AnswerBaseline):
    r"""Asks a language model each question, and reads its reply.

    Of a test question two things are asked: a reply with a reason and an answer, which gives outcome, status and
    reason; and, where the client can say so, how likely each letter of a list of the outcomes is, for the scores. With
    :math:`\ell_{jk}` the log probability of the letter of outcome k in order j of the list, normalised over the three,
    the scores are the softmax of :math:`\frac{1}{J} \sum_j \ell_{jk}`: what a model thinks of a letter, or of a place
    in the list, cancels. Of val questions only the scores are wanted; adapters are fitted to them, so that language
    models have raw and calibrated rows as expression models have.

    A model that gives reasons may answer otherwise after a reason than without one. ``scores_after=reason`` takes its
    own reply, cut off where the answer begins, and how likely each outcome is there; the scores are the softmax, and,
    over several samples, the mean of those. Val is then asked for replies as test is. A reply that comes to no answer
    has no scores: its question keeps its status, and adapters neither learn from it nor move it.

    Nothing is fitted. Examples are drawn from train alone, so that val is held out as it is.

    Parameters
    ----------
    client
        Where the model runs.
    preset
        ``no_path``, ``global_path`` (paths of the graph) or ``cell_path`` (paths gated by basal expression: those laid
        over the fold, or shipped with the data set, where there are any).
    template
        A text file in the place of the preset's own, or ``short``, for models that are trained on it; see
        :class:`~pertbase.baselines.llm.Template`.
    examples
        Training questions shown before each question, as many of each outcome as can be.
    samples
        Replies to each question; the outcome most of them give stands.
    temperature, top_p, max_tokens, thinking, guided
        See :class:`~pertbase.baselines.llm.Sampling`. Several samples need a temperature above zero.
    orders
        Of the options whose letters are scored: 1, 3 or 6; 0 for no scores.
    answer_from
        ``text``: outcome and status are the reply's. ``options``: the outcome of the largest score; the reply gives the
        reason alone.
    scores_after
        What the outcomes are scored after: the ``prompt``, or the model's own ``reason``, its reply up to the answer.
        The latter costs a reply to each question of val, and wants a client that can go on with a reply: a model on
        this machine.
    graph
        The signed graph in which paths are found that the fold does not bring, as
        :func:`~pertbase.knowledge.signed_graph` takes it.
    hops
        Edges of such a path, at most.
    k
        Such paths from a target to the readout gene, at most.
    """

    refit: ClassVar[bool] = False
    settings_group: ClassVar[str] = "asking"
    """Which group of a run's configuration :meth:`workspace` is given."""

    def __init__(
        self,
        *,
        client: Client,
        preset: str = "no_path",
        template: str | None = None,
        examples: int = 0,
        samples: int = 1,
        temperature: float = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 256,
        thinking: bool | None = None,
        guided: bool = False,
        orders: int = 3,
        answer_from: str = "text",
        scores_after: str = "prompt",
        graph: Any = None,
        hops: int = 3,
        k: int = 5,
    ) -> None:
        if answer_from not in _SOURCES:
            raise unknown_name("answer_from", str(answer_from), _SOURCES)
        if scores_after not in _AFTER:
            raise unknown_name("scores_after", str(scores_after), _AFTER)
        if samples < 1 or (samples > 1 and temperature == 0):
            raise InputError("several samples need a temperature above zero", key="samples", value=samples)
        if examples < 0:
            raise InputError("is not negative", key="examples", value=examples)
        if scores_after == "reason" and not (orders and client.scores_outcomes):
            raise InputError(
                "needs a client that scores what follows in a reply that was begun, as a model on this machine does, "
                "and orders above 0",
                key="scores_after", value=scores_after, remedy="use baseline.scores_after=prompt",
            )  # fmt: skip
        if answer_from == "options" and scores_after == "prompt" and not (orders and client.scores_letters):
            raise InputError(
                "needs a client that scores letters, and orders above 0", key="answer_from", value=answer_from
            )
        self.client = client
        self.preset = preset
        self.template = template
        self.examples = examples
        self.samples = samples
        self.temperature = temperature
        self.top_p = top_p
        self.max_tokens = max_tokens
        self.thinking = thinking
        self.guided = guided
        self.orders = orders
        self.answer_from = answer_from
        self.scores_after = scores_after
        self.graph = graph
        self.hops = hops
        self.k = k
        self._orders = option_orders(orders) if orders else ()
        self._encoder = Encoder(preset=preset, graph=graph, hops=hops, k=k)
        self._template = read_template(template, preset)
        self._asking = AskSettings()
        self._root: Path | None = None
        self._shown: list[Example] | None = None
        self._asker: Asker | None = None
        self._rungs: dict[str, int] = {}
        self._unscored: dict[str, int] = {}

    # -- where and how --------------------------------------------------------------------------------------

    def workspace(self, folder: Path, asking: Mapping[str, Any]) -> dict[str, Any]:
        """Take the run's folder and how to ask; responses are kept among the runs, for whoever asks the same again.

        Returns
        -------
        dict
            Nothing: no setting changes an answer.
        """
        self._asking = AskSettings.from_config(asking)
        own = self._asking.responses
        self._root = Path(own) if own else Path(folder).parents[3] / "_responses"
        return {}

    @property
    def packages(self) -> tuple[str, ...]:
        """Whose versions a run records."""
        return self.client.packages

    @property
    def device(self) -> str:
        """What the model runs on, for the record of a run."""
        return self._asker.client.device if self._asker else self.client.device

    def account(self) -> dict[str, Any]:
        """Return what was asked and what it took, for the record of a run.

        Replies, those of val among them, are counted by where their answer was read from; where scores are taken after
        a reason, questions without scores by the status of their replies.
        """
        if self._asker is None:
            return {}
        how = {"preset": self.preset, "template": self._template.hash, "guided": self.guided and self.client.guides}
        read = {"answers_read_from": dict(sorted(self._rungs.items())), "scores_after": self.scores_after}
        unscored = {"without_scores": dict(sorted(self._unscored.items()))} if self._after_reason else {}
        return {**self._asker.summary(), **how, **read, **unscored}

    def refuses(self, training: Training) -> str | None:
        """Refuse where the client cannot be used here, or the preset's paths cannot be had."""
        return self.client.refuses() or self._encoder.refuses(training)

    # -- fit and answer -------------------------------------------------------------------------------------

    def fit(self, training: Training) -> LanguageModel:
        """Draw the examples from train."""
        self._shown = self._encoder.examples(training, example_questions(training, self.examples))
        sampling = Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            thinking=self.thinking,
            guided=self.guided and self.client.guides,
            seed=training.seed,
        )
        about = {"template": self._template.hash, "preset": self.preset, "seed": training.seed}
        self._asker = Asker(self.client, sampling, self._asking, root=self._root, about=about)
        self._rungs, self._unscored = {}, {}
        return self

    @property
    def prompt_template(self) -> Template:
        """The text of its prompts."""
        return self._template

    def prepare(self, training: Training) -> LanguageModel:
        """Get ready to say what would be asked; what ``fit`` may train is not trained."""
        return self.fit(training)

    def records(self, inputs: Inputs) -> list[Record]:
        """Return what each question says, in order."""
        return self._encoder.records(inputs)

    def shown(self, inputs: Inputs) -> dict[str, Paths | None]:
        """Return the paths that each question is shown, by its id; None where the preset shows none."""
        return {record.id: record.paths for record in self._encoder.records(inputs)}

    def as_laid(self, options: Mapping[str, Any]) -> None:
        """Find the paths of another context as those laid over a fold were found, see ``PathLayer.options``."""
        self._encoder.as_laid(options)

    def in_context(self, record: Record, inputs: Inputs, context: str) -> Record:
        """Return a record of the same perturbation and readout gene in another context, with its levels and paths."""
        return self._encoder.swapped(record, inputs, context=context)

    def prompts(self, records: Sequence[Record]) -> list[Messages]:
        """Return the prompt that asks for a reply, of each record.

        Raises
        ------
        InputError
            Before ``fit``.
        """
        told = self._template.examples(self._fitted_examples())
        return [self._template.reply(record, told) for record in records]

    def answer(self, inputs: Inputs) -> Answers:
        """Ask what has not been asked before, and return an answer for each question."""
        records = self.records(inputs)
        # Adapters are fitted to scores: where letters give them, val needs no replies.
        alone = inputs.split == "val" and not (self._votes or self._after_reason)
        parsed, scores = self.said(records, replies=not alone)
        return self._answers(records, parsed, scores, letters_alone=alone)

    def said(self, records: Sequence[Record], *, replies: bool = True) -> tuple[list[Parsed], np.ndarray]:
        """Return what the model says of records: each parsed, and scores of shape (n, 3), NaN where there are none.

        Without ``replies``, letters alone are asked for; scores after a reason want replies all the same.
        """
        if self._after_reason:
            return self._said_with_reasons(records)
        asked = self.reply_requests(records) if replies else []
        responses = self.ask([*asked, *self.letter_requests(records)])
        scores = letter_scores(responses[len(asked) :], self._orders, len(records))
        if not replies:
            return [Parsed(None, "no_answer")] * len(records), scores
        parsed = self.parsed(records, responses[: len(asked)], scores)
        return parsed, self._shares(responses) if self._votes else scores

    def _said_with_reasons(self, records: Sequence[Record]) -> tuple[list[Parsed], np.ndarray]:
        replies = self.ask(self.reply_requests(records))
        requests = self.outcome_requests(records, replies)
        # One sample a row; those that come to no answer are asked for nothing, and have no scores.
        rows = [row for row, request in enumerate(requests) if request is not None]
        found = self.ask([request for request in requests if request is not None])
        each = np.full((len(replies), len(OUTCOMES)), np.nan)
        each[rows] = letter_scores(found, (OUTCOMES,), len(found))
        scores = mean_scores(each, self.samples)
        parsed = self.parsed(records, replies, scores)
        for one, absent in zip(parsed, np.isnan(scores).any(axis=1), strict=True):
            if absent:
                self._unscored[one.status] = self._unscored.get(one.status, 0) + 1
        return parsed, scores

    @property
    def _after_reason(self) -> bool:
        return self.scores_after == "reason"

    @property
    def _votes(self) -> bool:
        """Whether scores are shares of samples, for want of likelihoods."""
        return not self._after_reason and not (self.orders and self.client.scores_letters) and self.samples > 1

    @property
    def option_orders(self) -> tuple[tuple[str, ...], ...]:
        """The orders of the outcomes that letters are asked in, as :meth:`letter_requests` has them."""
        return self._orders

    def reply_requests(self, records: Sequence[Record]) -> list[Request]:
        """Return what asks for the replies of records: all samples of one stand together."""
        prompts = self.prompts(records)
        return [
            Request("reply", (prompt,), record.id, sample)
            for record, prompt in zip(records, prompts, strict=True)
            for sample in range(self.samples)
        ]

    def letter_requests(self, records: Sequence[Record]) -> list[Request]:
        """Return what asks how likely each letter is; nothing where the client cannot say, or scores are of replies."""
        if self._after_reason or not (self.orders and self.client.scores_letters):
            return []
        template, shown = self._template, self._fitted_examples()
        told = template.option_examples(shown)
        return [
            Request("letters", tuple(template.options(record, order, told) for order in self._orders), record.id)
            for record in records
        ]

    def outcome_requests(self, records: Sequence[Record], replies: Sequence[Response]) -> list[Request | None]:
        """Return what asks how likely each outcome is in each reply, where its answer begins; None where none does.

        ``replies`` are those to :meth:`reply_requests`, all samples of a record together.
        """
        made: list[Request | None] = []
        for record, prompt in zip(records, self.prompts(records), strict=True):
            for reply in replies[len(made) : len(made) + self.samples]:
                place = place_in_reply(
                    reply.text, reply.finish, record, self._template, thought_begun=reply.thought_begun
                )
                turn = ("assistant", reply.text[:place])
                made.append(None if place is None else Request("outcomes", ((*prompt, turn),), record.id))
        return made

    def request_key(self, request: Request) -> str:
        """Return the hash under which the response to a request is kept.

        Raises
        ------
        InputError
            Before ``fit``.
        """
        if self._asker is None:
            raise _not_fitted(self)
        return self._asker.key(request)

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        """Return a response for each request, from what is kept where it was asked before."""
        if self._asker is None:
            raise _not_fitted(self)
        return self._asker.ask(requests)

    def parsed(self, records: Sequence[Record], replies: Sequence[Response], scores: np.ndarray) -> list[Parsed]:
        """Return what the replies to each record say together; ``scores`` break ties."""
        found = []
        for row, record in enumerate(records):
            part = replies[row * self.samples : (row + 1) * self.samples]
            said = [
                read_reply(one.text, one.finish, record, self._template, thought_begun=one.thought_begun)
                for one in part
            ]
            found.append(self_consistent(said, None if np.isnan(scores[row]).any() else scores[row]))
            # What no server took was never replied to, whatever its text is read as.
            rejected = all(one.finish == "rejected" for one in part)
            where = "rejected" if rejected else found[-1].rung or found[-1].status
            self._rungs[where] = self._rungs.get(where, 0) + 1
        return found

    def _shares(self, replies: Sequence[Response]) -> np.ndarray:
        said = [parse(one.text, finish=one.finish, thought_begun=one.thought_begun).outcome for one in replies]
        return vote_shares([said[begin : begin + self.samples] for begin in range(0, len(said), self.samples)])

    def _answers(
        self, records: Sequence[Record], parsed: Sequence[Parsed], scores: np.ndarray, *, letters_alone: bool
    ) -> Answers:
        ids = [record.id for record in records]
        outcomes = [one.outcome for one in parsed]
        statuses = [one.status for one in parsed]
        if letters_alone or self.answer_from == "options":
            outcomes = likeliest(scores)
            absent = [one.status if self._after_reason and not one.outcome else "no_answer" for one in parsed]
            statuses = [why if outcome is None else "ok" for outcome, why in zip(outcomes, absent, strict=True)]
        table = pd.DataFrame({"id": ids, "outcome": outcomes, "status": statuses}).astype(object)
        table = table.assign(**{name: scores[:, column] for column, name in enumerate(SCORES)})
        if letters_alone:
            return Answers(table)
        triplets = np.empty(len(parsed), dtype=object)
        triplets[:] = [one.triplets for one in parsed]
        reasons = pd.DataFrame({"id": ids, "triplets": triplets, "text": [one.text for one in parsed]})
        return Answers(table, reasons)

    def _fitted_examples(self) -> list[Example]:
        if self._shown is None:
            raise _not_fitted(self)
        return self._shown


def _not_fitted(owner: object) -> InputError:
    return InputError(f"this {type(owner).__name__} is not fitted", remedy="call fit(training) first")
