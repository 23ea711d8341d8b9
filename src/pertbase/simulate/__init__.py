r"""The embedded screen: simulated cells whose mechanism is known.

Everything here is simulated and says so: the data set is named ``simulated``, genes are ``SG001``, ``SG002``, ...,
compounds ``simdrug01``, ... It lets every baseline run anywhere in seconds, and it is the only data set on which a
reason can be compared with what really happened. It is no evidence about biology.

Network. Genes form modules of signalling genes, regulators and effectors, beside housekeeping genes without edges.
Signalling genes act on later ones and on regulators, regulators on later ones and on effectors and, as feedback, on
signalling genes. Sources are drawn mostly within the module and in proportion to a log-normal propensity to be a
hub. Edge :math:`h \to g` has a sign :math:`\sigma_{hg}`, a weight :math:`w_{hg}` and sometimes a gate gene.

Contexts. Context :math:`c` has basal log abundances :math:`b_{cg}`; some genes are silent in it. With
:math:`e_{cg} = 1` where :math:`b_{cg} \ge \theta` and 0 elsewhere, an edge is active, :math:`a_{chg} = 1`, where its
source and its gate are expressed.

Perturbations. A guide holds the transcript of its target at :math:`u_g` (CRISPRi below, CRISPRa above 0). A compound
leaves transcripts alone and changes the activity of its targets by :math:`v_g = \pm v_{\max} d / (d + d_{50})` at dose
:math:`d`; some compounds also have an off-target that nobody knows of, and some lack annotated signs.

Response. From :math:`x = u`, the log changes of transcripts are updated a few times:

.. math::

    y_h &= x_h + v_h, \qquad
    \varphi(y) = \operatorname{sign}(y) \max(|y| - b, 0) \\
    A &= \tanh\Big(\tfrac{1}{S} \sum_h e_{ch} |\varphi(y_h)|\Big) \\
    x_g &\leftarrow u_g \text{ where a guide holds } g, \text{ else }
    s \tanh\Big(\tfrac{1}{s} \sum_h a_{chg} \sigma_{hg} w_{hg} \varphi(y_h)\Big) + A\, p_g

Small changes are buffered (:math:`b`), large ones saturate (:math:`s`), so that a combination is not the sum of its
parts; the sensor :math:`A` drives a general stress programme :math:`p` that any disturbance raises. The stress is what
makes a gene's prior strong, the network is what is specific to a perturbation, and a baseline that knows only the
first cannot go beyond the prior.

Cells. Cell :math:`i` with library size :math:`L_i` (log-normal) and cell state :math:`z_i` has

.. math::

    p_{ig} \propto \exp(b_{cg} + r_i x_g + \beta_{g,\mathrm{batch}(i)} + z_i \cdot \lambda_g), \qquad
    n_{ig} \sim \mathrm{NB}(\text{mean } L_i p_{ig},\ \text{dispersion } \alpha)

where :math:`r_i = 0` for the share of cells that escaped their guide and 1 for the others. Dropout follows from
depth. Counts are scaled to the median total before log1p. The true effects are the expectation of this, worked out
without sampling (:func:`pertbase.simulate._cells.expected_log`).

Knowledge. Models get a corrupted graph: edges missing, signs turned or unknown, spurious edges at hubs; and noisy gene
sets. Never the generating network.

Calibration. The defaults were chosen once, looking at seeds 0 to 2, and are frozen by a hash in a test: no model may
tune them. Figures are means over five random splits by target set or compound of single perturbations, rule ``ranksum``
against half of the controls, all contexts, for seeds 0 / 1 / 2; those of real screens come from PerturbQA (K562, RPE1,
HepG2, Jurkat), Papalexi (P) and Kang (Kg).

============================================  ====================  ====================  ========================
figure                                        genetic               chemical              real
============================================  ====================  ====================  ========================
share of questions called up or down          .088 / .072 / .088    .113 / .117 / .075    .13; .04 (P); .10-.25 (Kg)
gene prior, most frequent outcome             .67 / .59 / .53       .60 / .59 / .60       .61-.80
gene prior, divided by class frequency        .66 / .66 / .64       .61 / .66 / .67       .76-.85
split-half ceiling                            .89 / .88 / .89       .90 / .91 / .91       .79 (P)
true effects                                  .97 / .95 / .96       .95 / .97 / .96       unknown
copy from the other contexts                  .84 / .80 / .82       .82 / .82 / .83       .93-.95, mostly a leak
same direction where called in two contexts   .98 / .98 / .98       .96 / .96 / .98       .97-.99
============================================  ====================  ====================  ========================

Figures between the second and the last but one are balanced accuracies. The share of up among calls is .47 / .52 / .48.
"""

from pertbase.simulate._config import SimulationConfig
from pertbase.simulate._screen import NAME, Mechanism, Simulation, load_screen, simulate_screen
from pertbase.simulate._true_paths import true_paths

__all__ = ["NAME", "Mechanism", "Simulation", "SimulationConfig", "load_screen", "simulate_screen", "true_paths"]
