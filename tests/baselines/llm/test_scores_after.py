"""Scores after a model's own reason: how likely each outcome is where its answer begins, and what has none."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pertbase.adapters import Calibrated, held_out
from pertbase.baselines.llm import LanguageModel, OpenAIClient, Request, Sampling, TransformersClient, VLLMClient
from pertbase.baselines.llm._option_scores import mean_scores
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES, SCORES

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture
def client(tiny_model):
    return TransformersClient(model=str(tiny_model), settings={"batch_size": 3, "device": "cpu"})


def asked(client, requests, sampling=None):
    found = {}
    client.ask(requests, range(len(requests)), sampling or Sampling(), lambda rows: found.update(rows))
    return [found[row] for row in range(len(requests))]


def plain(client, request, words=OUTCOMES, thinking=True):
    """The log probability of what tells each word from the others: one text at a time, no cache, no padding."""
    tokenizer, model = client._load()
    *turns, (_, begun) = request.prompts[0]
    text = tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in turns],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=thinking,
    )
    before = tokenizer.encode(text, add_special_tokens=False)
    rows = [before + tokenizer.encode(begun + word, add_special_tokens=False) for word in words]
    first = next(place for place in range(len(min(rows, key=len))) if len({row[place] for row in rows}) > 1)
    logs = []
    for row in rows:
        with torch.no_grad():
            table = torch.log_softmax(model(torch.tensor([row])).logits[0].double(), dim=-1)
        begins = [[other[: place + 1] for other in rows].count(row[: place + 1]) for place in range(len(row))]
        last = begins.index(1)
        logs.append(sum(float(table[place - 1, row[place]]) for place in range(first, last + 1)))
    return logs


BEGUN = (
    '{"triplets": [], "answer": "',
    'So.\n{"triplets": [["G1", "activates", "G2"]], "answer": "',
    "Answer: ",
    "",
    "up ",
)


def outcome_requests(shared="Cells: A. What came before: G1 goes up. "):
    turns = (("system", "Be brief."), ("user", f"{shared}G2?"))
    return [Request("outcomes", ((*turns, ("assistant", begun)),), f"q{row}") for row, begun in enumerate(BEGUN)]


@pytest.mark.parametrize("n", [1, len(BEGUN)])
def test_outcomes_have_the_log_probability_of_a_plain_pass_over_the_reply_as_it_was_begun(client, n):
    requests = outcome_requests()[-n:]
    letters = Request("letters", ((("user", "A. up B. down C. none"),),), "other")
    for request, response in zip(requests, asked(client, [*requests, letters])[:n], strict=True):
        np.testing.assert_allclose(response.letters[0], plain(client, request), atol=1e-5)


def test_outcomes_that_begin_with_the_same_tokens_are_told_apart_by_the_next(client, monkeypatch):
    words = ("dxt", "dxg", "up")
    monkeypatch.setattr("pertbase.baselines.llm._clients._transformers.OUTCOMES", words)
    requests = outcome_requests()
    for request, response in zip(requests, asked(client, requests), strict=True):
        np.testing.assert_allclose(response.letters[0], plain(client, request, words), atol=1e-5)


@pytest.mark.parametrize("thinking", [True, False])
def test_a_reply_goes_on_under_the_thinking_that_it_was_made_with(client, thinking):
    request = outcome_requests()[0]
    (response,) = asked(client, [request], Sampling(thinking=thinking))
    np.testing.assert_allclose(response.letters[0], plain(client, request, thinking=thinking), atol=1e-5)
    assert not np.allclose(response.letters[0], plain(client, request, thinking=not thinking), atol=1e-3)


def test_the_key_holds_the_reply_as_it_was_begun_and_not_how_it_was_drawn():
    identity, drawn = {"model": "m"}, Sampling(temperature=0.7, max_tokens=9, seed=3)
    one, other = outcome_requests()[:2]
    keys = [one.key(identity, drawn), other.key(identity, drawn), outcome_requests("B. ")[0].key(identity, drawn)]
    keys += [Request("letters", one.prompts, "q").key(identity, drawn), one.key({"model": "n"}, drawn)]
    keys.append(one.key(identity, Sampling(thinking=True)))
    assert len(set(keys)) == len(keys)
    assert one.key(identity, Sampling()) == keys[0]


def test_scores_are_the_mean_over_the_samples_that_have_any():
    parts = np.array([[0.8, 0.1, 0.1], [np.nan] * 3, [0.2, 0.3, 0.5], [np.nan] * 3, [np.nan] * 3, [np.nan] * 3])
    np.testing.assert_allclose(mean_scores(parts, 3), [[0.5, 0.2, 0.3], [np.nan] * 3])


HELD = {"guided": True, "max_tokens": 51}

# -- of a fold ----------------------------------------------------------------------------------------------


def model_of(client, folder=None, **options):
    model = LanguageModel(client=client, preset="cell_path", scores_after="reason", **options)
    if folder is not None:
        model.workspace(folder / "data" / "fold" / "model" / "seed0", {})
    return model


def scores_of(answers):
    return answers.table[list(SCORES)].to_numpy(dtype=np.float64)


def kept(folder):
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.open(encoding="utf-8")]


@pytest.fixture
def short_names(monkeypatch):
    """A model of random weights, held to the form of a reply, comes to an end of it."""
    monkeypatch.setattr("pertbase.baselines.llm._clients._guide._LONGEST", 3)


def test_each_question_of_val_and_test_is_replied_to_once_and_scored_in_that_reply(
    client, path_fold, tmp_path, short_names
):
    fold = path_fold(n_genes=8)
    model = model_of(client, tmp_path, guided=True, max_tokens=60).fit(fold.training)
    val, test = model.answer(fold.training.inputs("val")), model.answer(fold.inputs)
    scored = []
    for answers in (val, test):
        scores = scores_of(answers)
        there = ~np.isnan(scores).any(axis=1)
        scored += answers.table.loc[there, "id"].tolist()
        np.testing.assert_allclose(scores[there].sum(axis=1), 1)
        assert set(answers.table.loc[~there, "status"]) <= {"truncated"}
        assert len(answers.reasons) == len(answers)
    rows = kept(tmp_path)
    assert len({row["key"] for row in rows}) == len(rows) == model.account()["asked"]
    replies = {row["question"]: row["text"] for row in rows if row["kind"] == "reply"}
    begun = {row["question"]: row["prompt"][-1][1] for row in rows if row["kind"] == "outcomes"}
    ids = [*val.table["id"], *test.table["id"]]
    assert set(replies) == set(ids)
    assert set(begun) == set(scored)
    assert len(scored) > 20
    assert all(replies[name].startswith(text) and text.endswith('"answer": "') for name, text in begun.items())
    assert sum(model.account()["without_scores"].values()) == len(ids) - len(scored)


@pytest.mark.parametrize("half", ["reply", "outcomes"])
def test_stopped_anywhere_it_goes_on_to_the_same_scores_and_asks_nothing_twice(
    half, client, path_fold, tmp_path, short_names
):
    fold = path_fold(n_genes=8)
    drawn = {**HELD, "temperature": 1.0, "samples": 2}
    whole, later = (model_of(client, tmp_path / name, **drawn) for name in ("whole", "later"))
    scores = scores_of(whole.fit(fold.training).answer(fold.inputs))
    assert 0 < np.isnan(scores).any(axis=1).sum() < len(scores) - 10
    rows = kept(tmp_path / "whole")
    # Of one kind the first half of the batches, and of what is asked after it nothing.
    numbers = sorted({row["batch"][0] for row in rows if row["kind"] == half})
    done = set(range(numbers[len(numbers) // 2]))
    left = [row for row in rows if row["batch"][0] in done]
    (folder,) = (tmp_path / "whole" / "_responses").iterdir()
    again = tmp_path / "later" / "_responses" / folder.name
    again.mkdir(parents=True)
    (again / "00001.jsonl").write_text("".join(json.dumps(row) + "\n" for row in left))
    np.testing.assert_array_equal(scores_of(later.fit(fold.training).answer(fold.inputs)), scores)
    assert 0 < len(left) < len(rows)
    assert later.account()["asked"] == len(rows) - len(left)
    assert len({row["key"] for row in kept(tmp_path / "later")}) == len(kept(tmp_path / "later")) == len(rows)


def test_a_reply_without_an_answer_has_no_scores_and_adapters_leave_it_as_it_is(path_fold, begun_client):
    fold = path_fold()
    ids = [*fold.training.inputs("val").questions["id"][:5], *fold.inputs.questions["id"][:4]]
    for answer_from in ("text", "options"):
        model = model_of(begun_client(cut=tuple(ids)), answer_from=answer_from).fit(fold.training)
        answers = model.answer(fold.inputs)
        missing = np.isnan(scores_of(answers)).any(axis=1)
        assert answers.table.loc[missing, "id"].tolist() == ids[5:]
        assert set(answers.table.loc[missing, "status"]) == {"truncated"}
        assert answers.table.loc[missing, "outcome"].isna().all()
        assert set(answers.table.loc[~missing, "status"]) == {"ok"}
        held = held_out(model, fold.training, minimum=3)
        assert held.how == "val"
        assert held.questions.loc[~held.speaks, "id"].tolist() == ids[:5]
        moved = Calibrated().fit(fold.training, held_out=held).answer(fold.inputs, answers).table
        assert moved.loc[missing, "outcome"].isna().all()
        assert moved.loc[missing, list(SCORES)].isna().all(axis=None)
        assert model.account()["without_scores"] == {"truncated": 9}


@pytest.mark.parametrize(
    "client", [OpenAIClient(model="m", logprobs=True), OpenAIClient(model="m"), VLLMClient(model="m")], ids=str
)
def test_a_client_that_cannot_go_on_with_a_reply_is_refused_by_the_name_of_the_option(client):
    with pytest.raises(InputError, match=r"scores_after: needs a client that .*baseline\.scores_after=prompt"):
        LanguageModel(client=client, scores_after="reason")


def test_no_scores_and_scores_after_a_reason_are_not_asked_for_together(begun_client):
    with pytest.raises(InputError, match=r"scores_after: .*orders above 0"):
        LanguageModel(client=begun_client(), scores_after="reason", orders=0)
    with pytest.raises(InputError, match=r"scores_after.*reasons.*prompt"):
        LanguageModel(client=begun_client(), scores_after="reasons")
