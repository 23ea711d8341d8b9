from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pertbase.baselines import BilinearRidge
from pertbase.baselines.simple._bilinear import _pseudobulk
from pertbase.baselines.simple._common import measured
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import Part, Perturbation


def independent(fold, *, n_components=10, ridge=0.1):
    """Y ~ G K P' + b by scikit-learn's components and one linear system in vec(K)."""
    from sklearn.decomposition import PCA

    effects = fold.training.effects.select(fold.training.conditions).values
    basal = fold.training.basal.loc[fold.training.conditions["context"]].to_numpy()
    embedding = PCA(min(n_components, len(effects)), svd_solver="full").fit_transform((basal + effects).T)
    at = pd.DataFrame(embedding, index=fold.training.genes)

    def rows(names, perturbations):
        return np.array([at.loc[list(perturbations[name].targets)].sum().to_numpy() for name in names])

    known = rows(fold.training.conditions["perturbation"], fold.training.perturbations)
    offset = effects.mean(axis=0)
    eye = np.eye(embedding.shape[1])
    system = np.kron(known.T @ known + ridge * eye, embedding.T @ embedding + ridge * eye)
    right = (embedding.T @ (effects - offset).T @ known).ravel(order="F")
    matrix = np.linalg.solve(system, right).reshape(eye.shape, order="F")
    asked = rows(fold.inputs.conditions["perturbation"], fold.inputs.perturbations)
    return (embedding @ matrix @ asked.T).T + offset


@pytest.mark.parametrize("options", [{}, {"n_components": 3, "ridge": 2.0}])
def test_bilinear_ridge_agrees_with_an_independent_computation(options, mixed_fold):
    fold = mixed_fold(5)
    predicted = BilinearRidge(**options).fit(fold.training).predict(fold.inputs)
    np.testing.assert_allclose(predicted.values, independent(fold, **options), atol=1e-8)
    assert np.ptp(predicted.values, axis=0).min() > 1e-3


def test_it_recovers_a_bilinear_truth(small_fold):
    rng = np.random.default_rng(0)
    genes = [f"G{number}" for number in range(60)]
    # Effects that are a function of the perturbed gene's component, which basal expression carries. The model
    # removes the mean effect but not the mean of P, so that only components with mean zero are recovered exactly.
    half = rng.normal(size=(15, 1)) * 3
    hidden = np.vstack([half, -half, half * 2, -half * 2])
    basal = pd.DataFrame(30 + hidden.T, index=["K"], columns=genes)
    values = 0.1 * hidden[:40] @ hidden.T
    named = [Perturbation.genetic([gene], "CRISPRi") for gene in genes[:40]]
    rows = [("K", perturbation, "train" if row < 30 else "test") for row, perturbation in enumerate(named)]
    fold = small_fold(rows, values, genes=genes, basal=basal, kind="unseen_perturbation_genetic")
    predicted = BilinearRidge(n_components=2, ridge=1e-6).fit(fold.training).predict(fold.inputs)
    np.testing.assert_allclose(predicted.values, values[30:], atol=1e-3)


def test_one_mechanism_gives_the_unsigned_model(small_fold):
    # Turning every sign turns P and K, and no prediction.
    genes = [f"G{number}" for number in range(30)]
    values = np.random.default_rng(1).normal(size=(12, 30))
    predicted = []
    for mechanism in ("CRISPRi", "CRISPRa"):
        named = [Perturbation.genetic([gene], mechanism) for gene in genes[:12]]
        rows = [("K", perturbation, "train" if row < 9 else "test") for row, perturbation in enumerate(named)]
        fold = small_fold(rows, values, genes=genes)
        predicted.append(BilinearRidge().fit(fold.training).predict(fold.inputs).values)
    np.testing.assert_allclose(predicted[0], predicted[1], atol=1e-10)


def test_a_target_that_was_not_measured_is_unsupported_only_where_no_other_is(small_fold):
    genes = [f"G{number}" for number in range(12)]
    trained = [("K", Perturbation.genetic([gene], "CRISPRi"), "train") for gene in [*genes[:6], "elsewhere"]]
    asked = [
        ("K", Perturbation.genetic(["missing"], "CRISPRi"), "test"),
        ("K", Perturbation.genetic(["missing", "G7"], "CRISPRi"), "test"),
        ("K", Perturbation.genetic(["G7"], "CRISPRi"), "test"),
        ("K", Perturbation((Part("drug", compound="mystery"),)), "test"),
    ]
    values = np.random.default_rng(2).normal(size=(11, 12))
    fold = small_fold([*trained, *asked], values, genes=genes)
    predicted = BilinearRidge().fit(fold.training).predict(fold.inputs)
    assert predicted.status.tolist() == ["unsupported", "ok", "ok", "unsupported"]
    assert not predicted.values[[0, 3]].any()
    np.testing.assert_allclose(predicted.values[1], predicted.values[2])


def test_log_mean_pseudobulk_is_taken_back_to_mean_log1p(mixed_fold):
    fold = mixed_fold(6, statistic="log_mean")
    values, basal = fold.training.effects.values, fold.training.basal
    model = BilinearRidge()
    level = _pseudobulk(measured(fold.training, model), fold.training).T
    start = basal.loc[fold.training.conditions["context"]].to_numpy()
    np.testing.assert_allclose(np.log(np.expm1(level) / np.expm1(start)), values, atol=1e-6)
    assert model.fit(fold.training).predict(fold.inputs).statistic == "log_mean"


def test_nothing_to_fit_on_is_refused(small_fold):
    missing, measured_one = (Perturbation.genetic([gene], "CRISPRi") for gene in ("missing", "G0"))
    rows = [("K", missing, "train"), ("K", measured_one, "test")]
    with pytest.raises(UnsupportedError, match="among the measured genes"):
        BilinearRidge().fit(small_fold(rows, np.ones((2, 4))).training)
    with pytest.raises(InputError, match="ridge"):
        BilinearRidge(ridge=0.0)
    with pytest.raises(InputError, match="component"):
        BilinearRidge(n_components=0)
