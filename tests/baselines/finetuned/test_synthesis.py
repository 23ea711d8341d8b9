"""Texts that a model wrote are learnt from only where they say what was measured and lead there."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import finetuned_toy as toy
import pytest

from pertbase.baselines.finetuned import FileTexts, RuleTexts, draft_examples, synthesise, write_texts
from pertbase.baselines.finetuned._rewards import Asked
from pertbase.baselines.finetuned._synthesis import why_rejected
from pertbase.baselines.llm import Client, LanguageModel, Response, parse
from pertbase.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Teacher(Client):
    """A model that is a rule: it tells the first path it is shown, and the answer it was told; some it gets wrong."""

    @property
    def identity(self):
        return {"client": "teacher"}

    @property
    def title(self):
        return "teacher"

    def ask(self, requests, rows, sampling, done):
        for row in rows:
            user = requests[row].prompts[0][-1][1]
            answer = re.search(r"the answer, which is (\w+)\.", user)[1]
            path = re.search(r"^1\. (.*)$", user, flags=re.MULTILINE)
            triplets = [edge.split(" ") for edge in path[1].split("; ")] if path else []
            told = "because  it\ndoes"
            if "CRISPRi" not in requests[row].question and triplets:
                triplets[0][1] = "inhibits" if triplets[0][1] == "activates" else "activates"
            made = json.dumps({"triplets": triplets, "explanation": told, "answer": answer})
            done([(row, Response(text=f"```json\n{made}\n```", served_by="teacher"))])


@pytest.fixture(scope="module")
def written(small):  # type: ignore[no-untyped-def]
    model = LanguageModel(client=Teacher(), preset="cell_path", orders=0).fit(small.training)
    return synthesise(model, small.training), model


def test_texts_that_lead_elsewhere_or_are_not_borne_out_are_rejected_with_the_reason(written, small):
    found, _ = written
    questions = small.training.headline
    train = questions.loc[questions["split"] == "train"].set_index("id")
    assert set(found.texts) | set(found.rejected) == set(train.index)
    for key, row in train.iterrows():
        turned = bool(row["candidate_paths"]) and not row["perturbation"].startswith("CRISPRi")
        assert (found.rejected.get(key) == "not borne out") == turned
    assert found.counts()["kept"] == len(found.texts) > 200
    assert found.counts()["not borne out"] == len(found.rejected) > 5


def test_every_text_says_who_wrote_it_and_under_which_hash_its_response_is_kept(written):
    found, model = written
    text = next(text for text in found.texts.values() if text.triplets)
    assert (text.source, text.explanation) == ("teacher", "because it does")
    assert text.request in model._asker.store
    assert parse(text.reply).outcome == text.outcome


ASKED = Asked("up", "G3", (("G1", -1),), given=((("G1", "inhibits", "G2"), ("G2", "activates", "G3")),))
MANY = [[f"G{number}", "activates", "G3"] for number in range(20)]
GOOD = [["G1", "inhibits", "G2"], ["G2", "activates", "G3"]]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"triplets": GOOD, "answer": "up"}, ""),
        ({"triplets": GOOD[::-1], "answer": "up"}, ""),
        ({"triplets": GOOD, "answer": "down"}, "another answer"),
        ({"triplets": GOOD}, "no_answer"),
        ({"triplets": [], "answer": "up"}, "no reason for a change"),
        ({"triplets": [["G1", "inhibits", "G3"]], "answer": "up"}, "not borne out"),
        ({"triplets": [["G1", "inhibits", "G2"]], "answer": "up"}, "does not lead to the outcome"),
        ({"triplets": MANY, "answer": "up"}, "more triplets than may be"),
        ({"triplets": GOOD, "explanation": "so " * 400, "answer": "up"}, "a long explanation"),
    ],
)  # fmt: skip
def test_what_a_text_must_hold(reply, why):
    assert why_rejected([ASKED], [parse(json.dumps(reply))]) == [why]


def test_a_reason_for_no_change_says_nothing_or_both():
    both = (*ASKED.given, (("G1", "activates", "G3"),))
    asked = Asked("no_change", "G3", ASKED.targets, given=both)
    whole = {"triplets": [*GOOD, ["G1", "activates", "G3"]], "answer": "no_change"}
    said = [
        parse(json.dumps(one)) for one in (whole, {"triplets": [], "answer": "no_change"}, {**whole, "triplets": GOOD})
    ]
    assert why_rejected([asked] * 3, said) == ["", "", "does not lead to the outcome"]


def test_a_file_of_texts_is_learnt_from_and_a_rule_writes_what_it_has_not(written, small, tmp_path):
    found, _ = written
    path = tmp_path / "texts.jsonl"
    write_texts(found, path)
    model = toy.fitted(small.training, reasons=str(path), preset="cell_path", max_epochs=1)
    sources = model.account()["learnt"]["texts"]
    by_rule = RuleTexts(explain=False)
    drafts = draft_examples(model, small.training, by_rule)
    assert sources["sources"]["teacher"] == len(found.texts)
    assert sum(sources["sources"].values()) == len(drafts)
    assert sources["sources"]["rule"] == len(found.rejected)
    assert (sources["file"], sources["of_no_question"]) == ("texts.jsonl", 0)
    read = {draft.record.id: draft.text for draft in draft_examples(model, small.training, FileTexts(path))}
    assert {key: read[key] for key in found.texts} == dict(found.texts)


def test_a_file_of_another_fold_is_refused(written, small, tmp_path):
    found, _ = written
    path = tmp_path / "texts.jsonl"
    write_texts(found, path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (tmp_path / "turned.jsonl").write_text("\n".join(json.dumps({**line, "outcome": "up"}) for line in lines))
    with pytest.raises(InputError, match=r"turned\.jsonl.*another outcome than was measured"):
        toy.fitted(small.training, reasons=str(tmp_path / "turned.jsonl"), preset="cell_path")
    (tmp_path / "strange.jsonl").write_text(json.dumps({**lines[0], "id": "nobody"}))
    assert "no text for a question of toy" in FileTexts(tmp_path / "strange.jsonl").refuses(small.training)
    (tmp_path / "broken.jsonl").write_text(json.dumps({**lines[0], "triplets": [["a", "b"]]}))
    with pytest.raises(InputError, match=r"broken\.jsonl.*is no text"):
        FileTexts(tmp_path / "broken.jsonl")
    with pytest.raises(InputError, match=r"none\.jsonl.*cannot be read"):
        FileTexts(tmp_path / "none.jsonl")


def test_a_template_of_ones_own_has_the_places_it_needs(small, tmp_path):
    (tmp_path / "mine.txt").write_text("$question Why?")
    model = LanguageModel(client=Teacher(), preset="cell_path", orders=0).fit(small.training)
    with pytest.raises(InputError, match=r"mine\.txt.*\$measured"):
        synthesise(model, small.training, template=str(tmp_path / "mine.txt"))
