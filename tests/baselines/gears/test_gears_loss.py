"""The losses: what they average, what they teach."""

from __future__ import annotations

import math

import pytest
import torch

from pertbase.baselines.gears._loss import LossTerms, gears_loss

torch_generator = torch.Generator().manual_seed(0)


def draw(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch_generator, dtype=torch.float64) * 2


@pytest.fixture
def terms() -> LossTerms:
    kept = draw(4, 7) > 0.8
    kept[:, 0] = True
    kept[3] = True
    return LossTerms(draw(6, 7), draw(6, 7), torch.tensor([0, 0, 3, 2, 2, 2]), kept, draw(7))


def by_loops(predicted: torch.Tensor, terms: LossTerms, direction, extra=None) -> float:
    """The formula of the module, literally."""
    total = 0.0
    conditions = sorted(set(terms.condition.tolist()))
    for condition in conditions:
        cells = [c for c in range(len(predicted)) if terms.condition[c] == condition]
        genes = [g for g in range(7) if terms.kept[condition, g]]
        value = 0.0
        for c in cells:
            for g in genes:
                value += float((predicted[c, g] - terms.observed[c, g]) ** 4) + 0.3 * float(direction(c, g))
                value += 0.0 if extra is None else float(extra(c, g))
        total += value / len(cells) / len(genes)
    return total / len(conditions)


def test_loss_is_the_mean_over_conditions_of_means_over_cells_and_expressed_genes(terms):
    predicted = draw(6, 7)

    def upstream(c, g):
        m = terms.mean_control[g]
        return (torch.sign(terms.observed[c, g] - m) - torch.sign(predicted[c, g] - m)) ** 2

    def corrected(c, g):
        x = terms.control[c, g]
        return (torch.tanh(terms.observed[c, g] - x) - torch.tanh(predicted[c, g] - x)) ** 2

    for preset, direction in (("upstream", upstream), ("corrected", corrected)):
        loss = gears_loss(predicted, terms, preset=preset, direction_weight=0.3)
        assert float(loss) == pytest.approx(by_loops(predicted, terms, direction), rel=1e-12)


def test_uncertainty_adds_what_the_module_says(terms):
    predicted, variance = draw(6, 7), draw(6, 7) - 1

    def weighed(c, g):
        return 0.7 * torch.exp(-variance[c, g]) * (predicted[c, g] - terms.observed[c, g]) ** 4

    def none(c, g):
        return 0.0

    def penalised(c, g):
        return weighed(c, g) + 0.7 * variance[c, g]

    for preset, extra in (("upstream", weighed), ("corrected", penalised)):
        loss = gears_loss(
            predicted, terms, preset=preset, direction_weight=0.0, log_variance=variance, uncertainty_weight=0.7
        )
        assert float(loss) == pytest.approx(by_loops(predicted, terms, none, extra), rel=1e-12)


def direction_gradient(terms: LossTerms, predicted: torch.Tensor, preset) -> torch.Tensor:
    predicted = predicted.clone().requires_grad_()
    parts = [gears_loss(predicted, terms, preset=preset, direction_weight=weight) for weight in (1.0, 0.0)]
    return torch.autograd.grad(parts[0] - parts[1], predicted)[0]


def test_direction_loss_has_a_gradient_in_corrected_and_none_in_upstream(terms):
    predicted = terms.control + 0.1
    assert (direction_gradient(terms, predicted, "upstream") == 0).all()
    kept = terms.kept[terms.condition]
    assert (direction_gradient(terms, predicted, "corrected")[kept] != 0).all()


def test_direction_loss_pushes_towards_the_observed_direction(terms):
    gradient = direction_gradient(terms, terms.control.clone(), "corrected")
    kept = terms.kept[terms.condition]
    assert torch.equal(-gradient[kept].sign(), (terms.observed - terms.control)[kept].sign())


def test_direction_loss_is_unbiased_where_a_perturbation_does_nothing(terms):
    # Cell and control drawn alike: exchanging them turns the gradient at "no change" around.
    swapped = LossTerms(terms.control, terms.observed, terms.condition, terms.kept, terms.mean_control)
    one = direction_gradient(terms, terms.control.clone(), "corrected")
    other = direction_gradient(swapped, terms.observed.clone(), "corrected")
    torch.testing.assert_close(one, -other)


def test_log_variance_has_an_optimum_in_corrected_and_grows_for_ever_in_upstream(terms):
    predicted = terms.observed + 0.5
    best = torch.full((6, 7), 4 * math.log(0.5), dtype=torch.float64)
    for preset, shift, sign in (
        ("corrected", 0.0, 0),
        ("corrected", 1.0, 1),
        ("upstream", 0.0, -1),
        ("upstream", 9.0, -1),
    ):
        variance = (best + shift).requires_grad_()
        loss = gears_loss(predicted, terms, preset=preset, direction_weight=0.0, log_variance=variance)
        gradient = torch.autograd.grad(loss, variance)[0][terms.kept[terms.condition]]
        assert (gradient.abs() < 1e-12).all() if sign == 0 else (gradient.sign() == sign).all()


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_error_is_raised_to_the_power_two_plus_gamma(terms, gamma):
    terms = LossTerms(
        terms.observed, terms.control, torch.zeros(6, dtype=torch.int64), terms.kept | True, terms.mean_control
    )
    loss = gears_loss(terms.observed + 0.5, terms, preset="corrected", direction_weight=0.0, gamma=gamma)
    assert float(loss) == pytest.approx(0.5 ** (2 + gamma))
