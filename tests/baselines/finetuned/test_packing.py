"""Batches: examples in a row do not see each other, loss is of replies alone, and ranks share what one process has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_examples import drafts_of

from pertbase.baselines.finetuned import RuleTexts, TinySizes, start_model, tokenised
from pertbase.baselines.finetuned._module import CausalModule
from pertbase.baselines.finetuned._packing import IGNORED, ExampleSampler, packed, rows_of
from pertbase.errors import InputError
from pertbase.folds import OUTCOMES

TINY = TinySizes(hidden_size=16, layers=2, heads=2, vocabulary=300)


@pytest.fixture(scope="module")
def taught(small):  # type: ignore[no-untyped-def]
    """A module, its tokenizer, and some examples of different lengths and weights."""
    drafts = drafts_of(small.training, RuleTexts())
    start = start_model("tiny", texts=[one.text.reply for one in drafts], symbols=["G1"], sizes=TINY)
    examples = tokenised(drafts, start.tokenizer, max_length=512).items
    chosen = sorted(examples, key=lambda one: (-one.weight, one.id))[::8][:13]
    assert len({len(one) for one in chosen}) > 3
    assert len({one.weight for one in chosen}) > 1
    return CausalModule(start.model, learning_rate=1e-3).eval(), start.tokenizer, chosen


def loss_of(module, batch):  # type: ignore[no-untyped-def]
    return (module.token_losses(batch) * batch.weights[:, batch.places]).sum() / batch.total


def by_hand(module, one) -> torch.Tensor:  # type: ignore[no-untyped-def]
    """Minus the log probability of a reply, from the whole of the model's logits, one example at a time."""
    ids = torch.tensor([[*one.prompt_ids, *one.completion_ids]])
    logs = torch.log_softmax(module.model(input_ids=ids).logits[0].double(), dim=-1)
    places = range(len(one.prompt_ids) - 1, ids.shape[1] - 1)
    return -sum(logs[place, ids[0, place + 1]] for place in places).detach()


def test_packed_loss_and_gradients_are_those_of_one_example_at_a_time(taught):
    module, tokenizer, examples = taught
    expected = sum(one.weight * by_hand(module, one) for one in examples)
    expected = float(expected / sum(one.weight * len(one.completion_ids) for one in examples))
    gradients = []
    for row in (None, 256, 1024):
        batch = packed(examples, row=row, pad=tokenizer.pad_token_id)
        module.zero_grad()
        loss = loss_of(module, batch)
        loss.backward()
        assert float(loss) == pytest.approx(expected, abs=1e-5)
        gradients.append(torch.cat([item.grad.flatten() for item in module.parameters()]))
    for other in gradients[1:]:
        assert torch.allclose(other, gradients[0], atol=1e-6, rtol=1e-4)
    assert gradients[0].abs().max() > 1e-3


def test_an_example_does_not_see_the_others_of_its_row(taught):
    module, tokenizer, examples = taught
    first, second = examples[:2]
    other = replace(second, prompt_ids=np.roll(second.prompt_ids, 3))
    assert not np.array_equal(other.prompt_ids, second.prompt_ids)
    with torch.no_grad():
        found = []
        for pair in ([first, second], [first, other]):
            batch = packed(pair, row=1024, pad=tokenizer.pad_token_id)
            assert batch.ids.shape[0] == 1
            losses = module.token_losses(batch)
            mine = batch.segments[0, batch.places] == (1 if len(first) >= len(second) else 2)
            found.append((losses[0, mine], losses[0, ~mine]))
    assert torch.equal(found[0][0], found[1][0])
    assert not torch.allclose(found[0][1], found[1][1])


def test_positions_begin_anew_with_every_example(taught):
    """Rotary positions are relative; those of other models are not."""
    _, tokenizer, examples = taught
    batch = packed(examples, row=512, pad=tokenizer.pad_token_id)
    assert len(batch.ids) < len(examples)
    for row in range(len(batch.ids)):
        for segment in range(1, int(batch.segments[row].max()) + 1):
            inside = batch.segments[row] == segment
            assert batch.positions[row, inside].tolist() == list(range(int(inside.sum())))


def test_loss_is_of_the_reply_and_its_end_alone(taught):
    _, tokenizer, examples = taught
    batch = packed(examples, row=512, pad=tokenizer.pad_token_id)
    learnt = batch.labels[batch.labels != IGNORED]
    assert len(learnt) == sum(len(one.completion_ids) for one in examples)
    assert int((learnt == tokenizer.eos_token_id).sum()) == len(examples)
    for row in range(len(batch.ids)):
        for place in np.flatnonzero(batch.labels[row] != IGNORED):
            assert batch.labels[row, place] == batch.ids[row, place + 1]
            assert batch.segments[row, place] == batch.segments[row, place + 1] > 0
    # Where a prompt's own tokens would have been labels, there are none, whatever the tokens are.
    turned = [replace(one, prompt_ids=np.full_like(one.prompt_ids, 7)) for one in examples]
    other = packed(turned, row=512, pad=tokenizer.pad_token_id)
    assert torch.equal(other.labels, batch.labels)


def test_a_batch_that_is_padded_computes_no_logits_of_prompts(taught):
    module, tokenizer, examples = taught
    batch = packed(examples[:1], row=None, pad=tokenizer.pad_token_id)
    assert module.logits(batch).shape[1] == len(examples[0].completion_ids)


@pytest.mark.parametrize("row", [60, 100, 1000])
def test_rows_hold_every_example_once_and_no_more_than_they_can(row):
    lengths = np.random.default_rng(0).integers(5, 60, 40).tolist()
    rows = rows_of(lengths, row)
    assert sorted(place for one in rows for place in one) == list(range(40))
    assert max(sum(lengths[place] for place in one) for one in rows) <= row
    # No two rows would fit into one: room is not wasted.
    used = sorted(sum(lengths[place] for place in one) for one in rows)
    assert len(used) == 1 or used[0] + used[1] > row


def sampler_of(taught, **options):  # type: ignore[no-untyped-def]
    _, tokenizer, examples = taught
    return ExampleSampler(
        examples, **{"batch_size": 4, "row": 512, "pad": tokenizer.pad_token_id, "seed": 0, **options}
    )


def ids_of(batches) -> list[list[int]]:  # type: ignore[no-untyped-def]
    return [batch.ids.flatten().tolist() for batch in batches]


def test_batches_are_a_function_of_seed_epoch_and_step(taught):
    sampler = sampler_of(taught)
    whole = ids_of(sampler.batches(1))
    assert len(whole) == sampler.steps == 3
    assert ids_of(sampler_of(taught).batches(1, start_step=2)) == whole[2:]
    assert ids_of(sampler.batches(2)) != whole
    assert ids_of(sampler_of(taught, seed=1).batches(1)) != whole


def test_ranks_share_each_batch_and_their_losses_add_up_to_that_of_one_process(taught):
    module = taught[0]
    sampler = sampler_of(taught)
    with torch.no_grad():
        for one, *parts in zip(
            sampler.batches(0), sampler.batches(0, rank=0, world=2), sampler.batches(0, rank=1, world=2), strict=True
        ):
            assert sum(map(len, parts)) == len(one)
            assert {part.total for part in parts} == {one.total}
            assert float(sum(loss_of(module, part) for part in parts)) == pytest.approx(float(loss_of(module, one)))
    with pytest.raises(InputError, match="shared equally by 3 ranks"):
        next(sampler.batches(0, world=3))


def test_resampled_epochs_hold_as_many_of_each_outcome(taught, small):
    _, tokenizer, _ = taught
    examples = tokenised(drafts_of(small.training), tokenizer, max_length=512, balance="resampled").items
    sampler = ExampleSampler(examples, batch_size=8, row=None, pad=0, seed=0, resampled=True)
    order = sampler.order(0)
    outcomes = [examples[place].outcome for place in order]
    counts = [outcomes.count(outcome) for outcome in OUTCOMES]
    assert len(order) == len(examples)
    assert max(counts) - min(counts) <= 2
    rare = [place for place in order if examples[place].outcome == "up"]
    times = [rare.count(place) for place in set(rare)]
    assert max(times) - min(times) <= 1
    assert {1.0} == {one.weight for one in examples}


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(InputError, match="no question with an outcome"):
        ExampleSampler([], batch_size=4, row=None, pad=0, seed=0)
    with pytest.raises(InputError, match="at least one example"):
        ExampleSampler([], batch_size=0, row=None, pad=0, seed=0)
