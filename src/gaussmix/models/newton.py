r"""The rule of private Newton steps on the likelihood of two classes, from a release's start and in its metric.

Post-processing: every function here reads declared constants and noisy outputs, never rows.

The start is the discriminant of the release's passes, θ₀. Rows are mapped by E, which makes the second moments of all
columns but the label's about 1, as between passes, so that the Hessian Σ p(1 - p) z zᵀ of the likelihood is near n v I,
v the mean of p(1 - p). A step asks for the sum of (y - p) z, each no longer than

.. math:: b = \kappa \sqrt{v\,d} ,\quad \kappa = \max(1.2, \min(0.03x, 3), 0.1\sqrt x),\; x = \hat n\mu/d ,

d columns, and for the sum of p(1 - p). With noise of deviation σ = b/μ_t in each of the d numbers of g,

.. math:: \theta_{t+1} = \theta_t + c\,\frac{E^\top g}{\hat n v} ,\quad
    c = \frac{\tau^2}{\tau^2 + \sigma^2} ,\; \tau^2 = \max(0, \|g\|^2/d - \sigma^2) ,

as much of it as stands out of its noise. The v that g is divided by is released with it; that in b is the one before,
at first that of the discriminant. Noise in the coefficients costs about κ²d²/(2μ_t²n²) in the log-loss, d times less
than that of a Gram matrix: hence the likelihood is within reach where the release is good, and steps are worth their
budget from x of about 20 on (docs/inference.md).
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.data.transforms import Transform
from gaussmix.models.fits import feature_indices
from gaussmix.models.passes import FLOOR
from gaussmix.models.pooling import clean
from gaussmix.models.responses import discriminant_of, two_classes
from gaussmix.models.steps import StepOutput, StepRequest, label_of
from gaussmix.models.transcript import Transcript

__all__ = ["WORTH_STEPS", "likelihood_coefficients", "plan_step"]

WORTH_STEPS = 20.0
"""x = nμ/d below which the budget is better spent on the release alone."""

LEAST_WEIGHT = 0.01
"""Least mean of p(1 - p): where classes are separated no step is longer for it."""

_RANGE = 1e-13
_LEAST_MARGIN = 2.0**-60  # stands for coefficients that are all zero


def plan_step(transcript: Transcript, target: str, mu: float) -> StepRequest:
    """The next step of a release; ``mu`` is the budget of its gradient."""
    if transcript.steps:
        last = transcript.steps[-1]
        metric, theta, weight = last.request.metric, _advanced(transcript, last), _weight(transcript, last)
    else:
        metric = _metric(transcript, label_of(transcript.schema, target))
        theta, weight = _start(transcript, target)
    d = len(metric)
    x = transcript.rows * mu / d
    kappa = max(1.2, min(0.03 * x, 3.0), 0.1 * math.sqrt(x))
    if not theta.any():
        theta[np.flatnonzero(metric.any(axis=0))[0]] = _LEAST_MARGIN
    return StepRequest(target, Transform.nearest(np.vstack([metric, theta])), kappa**2 * weight * d)


def likelihood_coefficients(transcript: Transcript) -> Floats:
    """θ after the last step, on all encoded columns in their own units; 0 on the label's."""
    return _advanced(transcript, transcript.steps[-1]) / transcript.schema.row_norm


def _advanced(transcript: Transcript, step: StepOutput) -> Floats:
    """θ after a step, of rows divided by C."""
    root, metric = math.sqrt(step.request.clip), step.request.metric
    g, sigma2 = root * step.gradient, step.request.clip / step.mu**2
    tau2 = max(float(np.mean(g**2)) - sigma2, 0.0)
    length = tau2 / (tau2 + sigma2) / (transcript.rows * _weight(transcript, step))
    return np.asarray(step.request.coefficients + length * (metric.T @ g))


def _weight(transcript: Transcript, step: StepOutput) -> float:
    """The mean of p(1 - p)."""
    return min(max(step.weight / (4 * transcript.rows), LEAST_WEIGHT), 0.25)


def _start(transcript: Transcript, target: str) -> tuple[Floats, float]:
    """The discriminant's θ, of rows divided by C, and its residual variance, which is about the mean of p(1 - p)."""
    schema = transcript.schema
    response, _ = two_classes(schema, target)
    features = feature_indices(schema, [target], None)
    b = transcript.solve(features, response.vector[:, np.newaxis])[:, 0]
    own = discriminant_of(transcript, response, features, b)
    theta = np.zeros(schema.n_columns)
    theta[features] = own.factor * response.scale * b
    if schema.intercept:
        theta += own.intercept(response.centre) * schema.units.one
    return theta * schema.row_norm, min(max(1 / own.factor, LEAST_WEIGHT), 0.25)


def _metric(transcript: Transcript, label: int) -> Floats:
    """E, shape (m - 1, m), which does not read the label: E G Eᵀ/n is about the identity."""
    m = transcript.schema.n_columns
    others = np.delete(np.arange(m), label)
    raised = clean(transcript.pool.current).raised(FLOOR * 2 * math.sqrt(m))[np.ix_(others, others)] / transcript.rows
    h, V = scipy.linalg.eigh((raised + raised.T) / 2)
    metric = np.zeros((m - 1, m))
    metric[:, others] = (V / np.sqrt(np.maximum(h, h[-1] * _RANGE))).T
    return metric
