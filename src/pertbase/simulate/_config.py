"""The numbers that define a simulated screen."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from pertbase._io import canonical_json, sha256_text
from pertbase.errors import InputError

__all__ = ["SimulationConfig"]


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """Sizes, rates and strengths of the simulated screen.

    The defaults are frozen: a test holds their hash, so that nobody tunes the screen to flatter a model.
    They were chosen once, against real screens (see :mod:`pertbase.simulate`). All strengths are natural
    logarithms.

    Parameters
    ----------
    contexts
        Names of the contexts.
    n_modules, n_signalling, n_regulators, n_effectors
        Modules, and the genes of each tier in every module.
    n_housekeeping
        Genes outside every module and without any edge.
    in_degree
        Mean number of regulators drawn for a signalling gene, a regulator and an effector; the latter two draw at
        least one.
    within_module
        Share of edges that stay in the target's module.
    hub_spread
        Standard deviation of the log out-degree propensity; larger makes fewer and larger hubs.
    activating
        Share of edges with sign +1.
    gated
        Share of edges that also need a gate gene to be expressed.
    weight_range
        Range of the edge weights' magnitude.
    silent
        Probability that a gene of a module is silent in a context.
    silent_drop
        How far a silent gene's basal log abundance falls.
    context_spread
        Standard deviation of a gene's basal log abundance between contexts.
    buffering
        Change of activity that goes unnoticed by downstream genes (``b`` of the propagation).
    saturation
        Largest change that regulation can make to a transcript (``s``).
    steps
        Steps of propagation.
    stress_share, stress_range, stress_up, stress_scale
        Share of effectors in the general stress programme, range of their loadings, share of positive loadings,
        and the disturbance at which the programme is at 76% of its strength.
    n_crispri, n_crispra, n_both
        Targets knocked down, targets activated, and how many are both.
    n_inert
        How many of the knocked-down targets are effectors, which regulate nothing.
    n_compounds, n_two_doses
        Compounds, and how many are given at two doses.
    compounds_on_perturbed
        Share of compounds whose main target is also perturbed genetically.
    off_target, agonist, unknown_sign
        Share of compounds with a hidden off-target, that raise their targets, and whose signs are not annotated.
    doses
        The high dose, given for every compound, and the low one (micromolar).
    n_combinations
        Combinations of two genes with 0, 1 and 2 parts also perturbed alone.
    combination_contexts
        In how many contexts, the first ones, combinations were done.
    knockdown_range, activation_range, inhibition_range
        Strength on the target: log decrease, log increase, largest log change of activity by a compound.
    escape
        Share of cells with a guide but without the perturbation.
    n_controls
        Control cells of a context.
    cells_range
        Smallest and largest number of cells of a condition.
    n_batches
        Batches of each context.
    batch_spread
        Standard deviation of a batch's log shift of a gene.
    depth, depth_spread
        Median total counts of a cell and the standard deviation of their logarithm.
    dispersion
        Negative-binomial dispersion: variance = mean + dispersion x mean squared.
    state_factors, state_spread
        Latent cell-state factors and the standard deviation of a gene's loading on each.
    missing, wrong_sign, no_sign, spurious
        Corruption of the graph, as shares: generating edges left out; kept edges with the sign turned; kept edges
        without a sign; edges added, relative to the generating ones.
    hub_bias
        Exponent of (out-degree + 1) in the choice of a spurious edge's source.
    set_recall, set_noise
        Share of a module's genes its gene set lists, and of listed genes that do not belong.

    Raises
    ------
    InputError
        Where a count is negative, a share lies outside [0, 1], a range is reversed, or more perturbations are
        asked for than there are genes to perturb.
    """

    contexts: tuple[str, ...] = ("S1", "S2", "S3", "S4")
    n_modules: int = 6
    n_signalling: int = 7
    n_regulators: int = 8
    n_effectors: int = 28
    n_housekeeping: int = 22
    in_degree: tuple[float, float, float] = (0.8, 2.0, 2.6)
    within_module: float = 0.8
    hub_spread: float = 1.0
    activating: float = 0.72
    gated: float = 0.35
    weight_range: tuple[float, float] = (0.8, 1.6)
    silent: float = 0.15
    silent_drop: float = 3.0
    context_spread: float = 0.45
    buffering: float = 0.12
    saturation: float = 1.4
    steps: int = 6
    stress_share: float = 0.15
    stress_range: tuple[float, float] = (0.3, 0.7)
    stress_up: float = 0.55
    stress_scale: float = 4.0
    n_crispri: int = 45
    n_crispra: int = 25
    n_both: int = 15
    n_inert: int = 4
    n_compounds: int = 30
    n_two_doses: int = 8
    compounds_on_perturbed: float = 0.5
    off_target: float = 0.3
    agonist: float = 0.15
    unknown_sign: float = 0.15
    doses: tuple[float, float] = (1.0, 0.1)
    n_combinations: tuple[int, int, int] = (8, 12, 16)
    combination_contexts: int = 2
    knockdown_range: tuple[float, float] = (1.0, 2.2)
    activation_range: tuple[float, float] = (0.8, 1.6)
    inhibition_range: tuple[float, float] = (1.4, 2.4)
    escape: float = 0.12
    n_controls: int = 400
    cells_range: tuple[int, int] = (45, 80)
    n_batches: tuple[int, ...] = (3, 3, 2, 2)
    batch_spread: float = 0.05
    depth: float = 1500.0
    depth_spread: float = 0.4
    dispersion: float = 0.25
    state_factors: int = 3
    state_spread: float = 0.12
    missing: float = 0.25
    wrong_sign: float = 0.08
    no_sign: float = 0.12
    spurious: float = 0.25
    hub_bias: float = 1.0
    set_recall: float = 0.8
    set_noise: float = 0.15

    def __post_init__(self) -> None:
        self._check_values()
        self._check_sizes()

    def _check_values(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            numbers = [item for item in (value if isinstance(value, tuple) else (value,)) if not isinstance(item, str)]
            if any(not number >= 0 for number in numbers):
                raise InputError("must not be negative", key=field.name, value=value)
            if field.name.endswith("_range") and value[0] > value[1]:
                raise InputError("the range is reversed", key=field.name, value=value)
        for name in _SHARES:
            if getattr(self, name) > 1:
                raise InputError("a share lies between 0 and 1", key=name, value=getattr(self, name))
        for name in ("depth", "saturation", "stress_scale", "steps", "n_modules", "dispersion"):
            if not getattr(self, name) > 0:
                raise InputError("must be positive", key=name, value=getattr(self, name))
        if min(self.in_degree[1:]) < 1:
            raise InputError("regulators and effectors draw at least one", key="in_degree", value=self.in_degree)
        if self.wrong_sign + self.no_sign > 1:
            raise InputError("wrong and unknown signs exceed the edges", key="no_sign", value=self.no_sign)

    def _check_sizes(self) -> None:
        if not self.contexts or len(set(self.contexts)) != len(self.contexts):
            raise InputError("contexts need distinct names", key="contexts", value=self.contexts)
        if len(self.n_batches) != len(self.contexts):
            raise InputError("one number a context", key="n_batches", value=self.n_batches)
        if self.n_inert > self.n_modules * self.n_effectors:
            raise InputError("more than there are effectors", key="n_inert", value=self.n_inert)
        if self.n_both > min(self.n_crispri - self.n_inert, self.n_crispra):
            raise InputError("more than there are targets of either kind", key="n_both", value=self.n_both)
        if self.n_two_doses > self.n_compounds:
            raise InputError("more than there are compounds", key="n_two_doses", value=self.n_two_doses)
        acting = self.n_modules * (self.n_signalling + self.n_regulators)
        alone = self.n_crispri - self.n_inert + self.n_crispra - self.n_both
        # Combinations of parts never perturbed alone, and some compounds, need genes left over.
        if not 0 < alone <= acting - 4:
            raise InputError(
                f"perturb at least one and at most {acting - 4} of the {acting} signalling and regulator genes",
                key="n_crispri, n_crispra, n_both",
                value=alone,
                remedy="change them, or n_modules",
            )
        if self.cells_range[0] < 1 or self.n_controls < 1 or 0 in self.n_batches:
            raise InputError("conditions, contexts and batches need cells", key="cells_range", value=self.cells_range)

    @property
    def n_genes(self) -> int:
        """Genes of the screen."""
        return self.n_modules * (self.n_signalling + self.n_regulators + self.n_effectors) + self.n_housekeeping

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @property
    def hash(self) -> str:
        """Hex SHA-256 of the fields."""
        return sha256_text(canonical_json(self.to_dict()))


_SHARES = (
    "within_module",
    "activating",
    "gated",
    "silent",
    "stress_share",
    "stress_up",
    "compounds_on_perturbed",
    "off_target",
    "agonist",
    "unknown_sign",
    "escape",
    "missing",
    "wrong_sign",
    "no_sign",
    "set_recall",
    "set_noise",
)
