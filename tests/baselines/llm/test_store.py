from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pertbase.baselines.llm import Request, Response, ResponseStore, Sampling
from pertbase.errors import InputError, PertbaseError

PROMPT = (("system", "Be brief."), ("user", "Does it go up?"))
ONE = Request("reply", (PROMPT,), "q1")
IDENTITY = {"client": "x", "model": "m", "revision": None, "base_url": "http://here"}


def rows(*names, finish="stop"):
    return [(name, replace(ONE, question=name), Response(f"text of {name}", finish=finish)) for name in names]


def test_what_was_kept_is_found_again_word_by_word(tmp_path):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    odd = Response("a\nb \u2028 ü \ud7ff", "thought", "length", ((-1.5, -2.25, -0.1),), 3, 4, 0.5, 2, "m-1")
    store.add([("k", ONE, odd)], {"template": "t"})
    store.close()
    again = ResponseStore(tmp_path / "m", IDENTITY)
    assert again.get("k") == odd
    assert json.loads((tmp_path / "m" / "model.json").read_text()) == IDENTITY
    line = json.loads((tmp_path / "m" / "00001.jsonl").read_text(encoding="utf-8").split("\n")[0])
    assert (line["question"], line["template"], line["prompt"]) == ("q1", "t", [list(turn) for turn in PROMPT])


@pytest.mark.parametrize("finish", ["error", "empty"])
def test_failures_are_logged_and_never_found(tmp_path, finish):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    store.add(rows("k", finish=finish), {})
    assert "k" not in store
    assert len(ResponseStore(tmp_path / "m", IDENTITY)) == 0
    assert "text of k" in (tmp_path / "m" / "failures.log").read_text()


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal", "rejected"])
def test_what_asking_again_would_not_change_is_kept_as_what_it_is(tmp_path, finish):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    store.add(rows("k", finish=finish), {})
    assert ResponseStore(tmp_path / "m", IDENTITY).get("k").finish == finish


def test_cut_anywhere_whole_batches_stay_and_the_rest_is_asked_again(tmp_path):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    store.add(rows("a", "b"), {})
    store.add(rows("c", "d", "e"), {})
    store.close()
    whole = (tmp_path / "m" / "00001.jsonl").read_bytes()
    first = len(b"\n".join(whole.split(b"\n")[:2])) + 1
    for length in range(len(whole) + 1):
        folder = tmp_path / "cut"
        folder.mkdir(exist_ok=True)
        (folder / "00001.jsonl").write_bytes(whole[:length])
        found = {key for key in "abcde" if key in ResponseStore(folder, IDENTITY)}
        # the line end of a batch's last line may be missing
        expected = set("abcde") if length >= len(whole) - 1 else {"a", "b"} if length >= first - 1 else set()
        assert found == expected, length


def test_a_process_that_goes_on_writes_a_segment_of_its_own(tmp_path):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    store.add(rows("a"), {})
    store.close()
    path = tmp_path / "m" / "00001.jsonl"
    path.write_bytes(path.read_bytes() + b'{"key": "b", "batch"')
    again = ResponseStore(tmp_path / "m", IDENTITY)
    again.add(rows("b"), {})
    again.close()
    assert {path.name for path in (tmp_path / "m").glob("*.jsonl")} == {"00001.jsonl", "00002.jsonl"}
    assert len(ResponseStore(tmp_path / "m", IDENTITY)) == 2


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    store.add(rows("a"), {})
    store.add(rows("b"), {})
    store.close()
    path = tmp_path / "m" / "00001.jsonl"
    lines = path.read_text().split("\n")
    path.write_text("\n".join([lines[0][:20], *lines[1:]]))
    with pytest.raises(InputError, match="line 1: cannot be read"):
        ResponseStore(tmp_path / "m", IDENTITY)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "m").write_text("in the way")
    with pytest.raises(PertbaseError, match="responses cannot be kept"):
        ResponseStore(tmp_path / "m", IDENTITY).add(rows("a"), {})


def test_the_key_holds_everything_that_changes_a_response():
    drawn = Sampling(temperature=0.7)
    key = ONE.key(IDENTITY, drawn)
    other = (("system", "Be brief."), ("user", "Does it go up? "))
    changed = [
        replace(ONE, prompts=(other,)).key(IDENTITY, drawn),
        replace(ONE, prompts=(PROMPT[1:],)).key(IDENTITY, drawn),
        replace(ONE, kind="letters").key(IDENTITY, drawn),
        replace(ONE, sample=1).key(IDENTITY, drawn),
        *(
            ONE.key(IDENTITY, replace(drawn, **{name: value}))
            for name, value in {
                "temperature": 0.8, "top_p": 0.9, "max_tokens": 9, "thinking": True, "guided": True, "seed": 1,
            }.items()
        ),
        *(ONE.key({**IDENTITY, name: "other"}, drawn) for name in IDENTITY),
    ]  # fmt: skip
    assert len({key, *changed}) == len(changed) + 1
    # whose question it is changes nothing: two that read the same are one
    assert replace(ONE, question="q2").key(IDENTITY, drawn) == key


def test_the_seed_of_a_reply_that_is_not_drawn_changes_nothing():
    assert ONE.key(IDENTITY, Sampling(seed=1)) == ONE.key(IDENTITY, Sampling(seed=2))
    letters = replace(ONE, kind="letters")
    assert letters.key(IDENTITY, Sampling(max_tokens=5)) == letters.key(IDENTITY, Sampling(max_tokens=6))
