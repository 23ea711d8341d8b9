"""Sums over ranks, as one rank of two that hold the same: both gloo ranks of a real group are in test_gears_ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from pertbase.baselines.gears._across_ranks import add_over_ranks_, gathered, place, summed


@pytest.fixture
def second_of_two(monkeypatch):
    def everybodys(parts, own):
        for part in parts:
            part.copy_(own)

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda value: value.mul_(2))
    monkeypatch.setattr(dist, "all_gather", everybodys)


def test_in_one_process_sums_are_what_was_given():
    value = torch.arange(3.0)
    assert place() == (0, 1)
    assert summed(value) is value
    add_over_ranks_(value)
    assert value.tolist() == [0, 1, 2]
    assert gathered(value)[0] is value


def test_a_sum_over_ranks_has_the_gradient_of_all_of_them(second_of_two):
    assert place() == (1, 2)
    value = torch.tensor([1.0, 2.0], requires_grad=True)
    total = summed(value)
    assert total.tolist() == [2, 4]
    (total**2).sum().backward()
    # Each rank's loss has the total in it: 2 ranks x 2 x total.
    assert value.grad.tolist() == [8, 16]


def test_several_sums_are_one_exchange_and_shares_stand_in_order_of_rank(second_of_two):
    one, other = torch.ones(2, 2), torch.tensor(3.0)
    add_over_ranks_(one, other)
    assert one.tolist() == [[2, 2], [2, 2]]
    assert float(other) == 6
    everybody, own = gathered(torch.tensor([5.0, 7.0]))
    assert everybody.tolist() == [5, 7, 5, 7]
    assert own == slice(2, 4)
