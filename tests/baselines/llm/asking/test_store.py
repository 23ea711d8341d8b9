from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar

import pytest

from pertbase.baselines.llm import Asker, AskSettings, Client, Request, Response, ResponseStore, Sampling
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
    with pytest.raises(InputError, match=r"line 1: cannot be read.*Remove that line"):
        ResponseStore(tmp_path / "m", IDENTITY)


def test_what_is_to_be_done_about_a_broken_line_does_what_it_says(tmp_path):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    store.add(rows("a", "b", "c", "d"), {})
    store.add(rows("e", "f"), {})
    store.close()
    path = tmp_path / "m" / "00001.jsonl"
    lines = path.read_text().split("\n")
    for place in range(6):
        path.write_text("\n".join([*lines[:place], lines[place][:20], *lines[place + 1 :]]))
        with pytest.raises(InputError, match=f"line {place + 1}: .*the whole batch .* is asked again"):
            ResponseStore(tmp_path / "m", IDENTITY)
        path.write_text("\n".join([*lines[:place], *lines[place + 1 :]]))
        found = {key for key in "abcdef" if key in ResponseStore(tmp_path / "m", IDENTITY)}
        assert found == set("ef" if place < 4 else "abcd")


STRAY = {
    "a folder": ("00002.jsonl", None),
    "notes": ("notes.jsonl", "hello\n"),
    "a copy": ("00001 (copy).jsonl", "half a li"),
    "another kind": ("00001.jsonl.bak", "{}"),
}


@pytest.mark.parametrize(("name", "text"), STRAY.values(), ids=STRAY)
def test_what_is_no_segment_is_left_alone(name, text, tmp_path):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    store.add(rows("a"), {})
    store.close()
    stray = tmp_path / "m" / name
    stray.mkdir() if text is None else stray.write_text(text)
    again = ResponseStore(tmp_path / "m", IDENTITY)
    again.add(rows("b"), {})
    again.close()
    assert {"a", "b"} == {key for key in "ab" if key in ResponseStore(tmp_path / "m", IDENTITY)}
    assert stray.is_dir() if text is None else stray.read_text() == text


@pytest.mark.parametrize(("field", "value"), [("text", 5), ("text", None), ("finish", "bogus"), ("letters", [["a"]])])
def test_a_line_that_holds_something_else_than_a_response_is_named(field, value, tmp_path):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    store.add(rows("a"), {})
    store.close()
    path = tmp_path / "m" / "00001.jsonl"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}) + "\n")
    with pytest.raises(InputError, match="line 1: cannot be read"):
        ResponseStore(tmp_path / "m", IDENTITY)


def test_letters_that_were_not_seen_come_back_as_such(tmp_path):
    store = ResponseStore(tmp_path / "m", IDENTITY)
    letters = replace(ONE, kind="letters")
    store.add([("k", letters, Response(letters=((-1.5, -2.0, -3.0), (math.nan,) * 3)))], {})
    store.close()
    found = ResponseStore(tmp_path / "m", IDENTITY).get("k")
    assert found.unseen
    assert found.letters[0] == (-1.5, -2.0, -3.0)


class Counting(Client):
    """Answers after a while, and counts what it was asked."""

    asked: ClassVar[list[str]] = []

    @property
    def identity(self):
        return {"client": "counting"}

    @property
    def title(self):
        return "counting"

    def ask(self, requests, rows, sampling, done):
        for row in rows:
            time.sleep(0.005)
            self.asked.append(requests[row].question)
            done([(row, Response("up", prompt_tokens=1))])


@pytest.mark.parametrize("same", [True, False])
def test_two_that_ask_the_same_at_once_ask_it_once_and_others_do_not_wait(same, tmp_path):
    Counting.asked.clear()
    requests = [Request("reply", ((("user", f"q{number}"),),), f"q{number}") for number in range(20)]
    both = [requests, requests if same else requests[10:]]
    askers = [Asker(Counting(), Sampling(), AskSettings(), root=tmp_path) for _ in both]
    if same:
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda one, asked: one.ask(asked), askers, both))
        assert [[one.text for one in part] for part in found] == [["up"] * 20] * 2
        assert len(Counting.asked) == 20
    else:
        with askers[0].store.asking("something else"):
            askers[1].ask(both[1])
        # what was kept meanwhile is found, though the store was opened before
        askers[0].ask(both[0])
        assert sorted(Counting.asked) == sorted(request.question for request in requests)


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
