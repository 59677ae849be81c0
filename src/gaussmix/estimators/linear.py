"""Private linear and logistic regression behind scikit-learn's interface.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (20_000, 3))
>>> y = X @ [0.5, -0.3, 0.1] + rng.uniform(-0.1, 0.1, 20_000)
>>> model = LinearMixing(epsilon=1.0, delta=1e-6, bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0).fit(X, y)
>>> bool(np.all(np.abs(model.coef_ - [0.5, -0.3, 0.1]) < 0.05))
True

``fit`` reads as the pipeline: declared bounds → moments → calibration → release → coefficients. Only what is derived
from the release becomes an attribute.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from gaussmix import _validation as check
from gaussmix.calibration import Calibration, calibrate, eigenvalue_error_bound
from gaussmix.curation import LEDGER_BUDGET, automatic_sketch_size
from gaussmix.encoding import RowEncoder
from gaussmix.inference import Problem, Summary, Target, summarise
from gaussmix.ledger import Ledger
from gaussmix.mechanism import check_sketch_size, draw_release, largest_table, open_release
from gaussmix.moments import Moments, accumulate
from gaussmix.releases import Release
from gaussmix.sampling import generator
from gaussmix.solvers import as_published, cleaned_ridge, least_squares
from gaussmix.surrogates import response_scale

__all__ = [
    "LinearMixing",
    "LogOdds",
    "LogisticMixing",
    "declare_encoder",
    "features_and_targets",
    "forget_names",
    "in_user_units",
    "papers_sketch_size",
    "read_classes",
    "read_table",
    "summed_up",
    "table_moments",
]

Floats = NDArray[np.float64]
Bounds = tuple[ArrayLike, ArrayLike]
Variant = Literal["exact", "paper"]

OTHER_ROWS = (
    "n_rows is declared as public, but the table has another number of rows. Declare what is public anyway, "
    "or leave n_rows out."
)
FEW_ROWS = "There are fewer rows than features: no regression is identified. Declare fewer features."
LABELS_PUBLIC = "the two labels were taken from the table and are taken to be public."

INTERCEPT_OF_NORM = 0.5
"""Value of the constant column, in units of ``data_norm``, where features are bounded by norm alone."""


# ---------------------------------------------------------------------------------------------------------------
# Declared bounds
def declare_encoder(
    n_features: int,
    n_targets: int,
    *,
    data_norm: float | None,
    bounds_X: Bounds | None,
    bounds_y: Bounds | None,
    fit_intercept: bool,
    weight: Literal["balanced", "paper"],
) -> RowEncoder:
    r"""How rows are encoded, from what the caller declares and the number of columns.

    With an intercept, bounded features and targets are centred; without one nothing is, and bounds are widened to
    ±max(\|lower\|, \|upper\|), so that no intercept comes in through the centres.

    The weight of the q targets is ``"balanced"``,

    .. math:: w^2 = C_X^2\,\bigl(\sqrt{1 + 8/q} - 1\bigr)/4,

    which minimises (C_X² + q w²)²(1/w² + 1/C_X²), the variance of the noise in xᵀ(y - xθ) for a θ that takes rows of
    norm C_X to targets of size 1; or the ``"paper"``'s: targets enter in the units of the features.
    """
    if bounds_y is None:
        raise ValueError(
            "bounds_y=(lower, upper) must be declared. It must be fixed before the data are seen: "
            "a bound taken from the data is not private."
        )
    target_bounds = _per_column(bounds_y, n_targets, "bounds_y")
    feature_bounds = None if bounds_X is None else _per_column(bounds_X, n_features, "bounds_X")
    if data_norm is not None:
        data_norm = check.positive(finite=True, data_norm=data_norm)
    if not fit_intercept:
        target_bounds = _symmetric(target_bounds)
        feature_bounds = None if feature_bounds is None else _symmetric(feature_bounds)
    intercept = 0.0 if not fit_intercept else (INTERCEPT_OF_NORM if feature_bounds is None else 1.0)
    bare = RowEncoder(n_features, feature_bounds, data_norm, intercept)
    if weight == "paper":
        unit = 1.0 if feature_bounds is not None or data_norm is None else data_norm
        weights = tuple((upper - lower) / 2 / unit if feature_bounds is None else 1.0 for lower, upper in target_bounds)
    else:
        x_norm_squared = bare.x_norm**2 + intercept**2
        weights = (math.sqrt(x_norm_squared * (math.sqrt(1 + 8 / n_targets) - 1) / 4),) * n_targets
    return RowEncoder(n_features, feature_bounds, data_norm, intercept, target_bounds, weights)


def _per_column(bounds: Bounds, columns: int, name: str) -> tuple[tuple[float, float], ...]:
    """One (lower, upper) pair a column, from scalars or one value a column."""
    try:
        lower, upper = bounds
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a pair (lower, upper), got {bounds!r}.") from None
    try:
        lows = np.broadcast_to(check.numbers(lower=lower), columns)
        highs = np.broadcast_to(check.numbers(upper=upper), columns)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a pair (lower, upper) of numbers, each a scalar or one per column ({columns}), "
            f"got {bounds!r}."
        ) from None
    return tuple(zip(lows.tolist(), highs.tolist(), strict=True))


def _symmetric(bounds: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    for lower, upper in bounds:
        if not lower < upper:
            raise ValueError(f"Bounds must be finite with lower < upper, got ({lower!r}, {upper!r}).")
    return tuple((-max(abs(lower), abs(upper)), max(abs(lower), abs(upper))) for lower, upper in bounds)


def in_user_units(theta: Floats, encoder: RowEncoder) -> tuple[Floats, Floats]:
    """Coefficients (targets, features) and intercepts (targets,) of y ≈ xθ in encoded units."""
    d = encoder.n_features
    centre, scale = encoder.feature_map
    target_centre, target_scale = encoder.target_map
    coef = (theta[:d] / scale[:, None] * target_scale).T
    intercept = target_centre - coef @ centre
    if encoder.intercept:
        intercept = intercept + target_scale * theta[d] * encoder.encoded_intercept * encoder.row_norm
    return np.asarray(coef), np.asarray(intercept)


# ---------------------------------------------------------------------------------------------------------------
# Steps that estimators and baselines share
def read_table(estimator: Any, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Checked arrays; NaN and infinities are looked for once, where rows are encoded."""
    rows: tuple[NDArray[Any], NDArray[Any]] = validate_data(
        estimator,
        X,
        y,
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        ensure_min_samples=2,
        multi_output=True,
        y_numeric=True,
    )
    return rows


def read_classes(
    estimator: Any, X: ArrayLike, y: ArrayLike, declared: ArrayLike | None
) -> tuple[NDArray[Any], Floats, NDArray[Any]]:
    """Checked features, labels as -1 and 1, and the two classes."""
    rows, labels = validate_data(
        estimator, X, y, dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=2
    )
    check_classification_targets(labels)
    classes = np.unique(labels) if declared is None else np.asarray(declared)
    if declared is not None and (classes.shape != (2,) or classes[0] == classes[1]):
        raise ValueError("classes must be two different labels.")
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(labels)}."
        )
    if len(classes) < 2:
        raise ValueError("y must have two classes, got one class only: declare classes=(first, second).")
    if not np.isin(labels, classes).all():
        raise ValueError("y has labels that are not in the declared classes.")
    return rows, np.where(labels == classes[1], 1.0, -1.0), classes


def table_moments(X: NDArray[Any], y: NDArray[Any], encoder: RowEncoder, *, n_rows: int | None) -> Moments:
    """Moments of a table in memory. Errors here are for the curator."""
    if n_rows is not None and check.positive_integer(n_rows=n_rows) != len(X):
        raise ValueError(OTHER_ROWS)
    if len(X) < X.shape[1]:
        raise ValueError(FEW_ROWS)
    return accumulate([(X, y)], encoder)


def features_and_targets(moments: Moments) -> tuple[int, int]:
    """How many of each, for moments of a regression."""
    if moments.schema is not None or not moments.encoder.n_targets:
        raise ValueError("These moments are of a whole table, not of features and targets: use gaussmix.release.")
    return moments.encoder.n_features, moments.encoder.n_targets


def forget_names(estimator: Any, n_features: int) -> None:
    """Moments have no column names."""
    estimator.n_features_in_ = n_features
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def summed_up(moments: Moments, encoder: RowEncoder, *, n_rows: int | None) -> Moments:
    """Moments that are what the estimator declares. Errors here are for the curator."""
    if moments.encoder != encoder or moments.schema is not None:
        raise ValueError(
            "These moments are of rows encoded under other bounds than the estimator declares: build them with "
            "accumulate(blocks, estimator.encoder(n_features, n_targets))."
        )
    if n_rows is not None and not moments.rows_between(check.positive_integer(n_rows=n_rows), n_rows):
        raise ValueError(OTHER_ROWS)
    if not moments.rows_between(encoder.n_features):
        raise ValueError(FEW_ROWS)
    return moments


def warn_if_hopeless(encoder: RowEncoder, calibration: Calibration, n_rows: int | None) -> None:
    """Warn, from public quantities and before anything is spent, that noise will exceed any possible signal.

    n rows of norm at most C_X have an average eigenvalue of at most n C_X²/d; directions below the edge of the noise,
    2 s √m, cannot be told from it.
    """
    if n_rows is None:
        return
    columns = encoder.n_features + (encoder.intercept != 0)
    signal = n_rows * (encoder.x_norm**2 + encoder.intercept**2) / encoder.row_norm**2 / columns
    noise = 2 * calibration.gamma / math.sqrt(calibration.sketch_size) * math.sqrt(encoder.n_columns)
    if signal < noise:
        warnings.warn(
            f"n_rows={n_rows} is too small for {encoder.n_features} features at epsilon={calibration.epsilon:g}: the "
            "noise exceeds the largest signal that such a table can have in an average direction. Use more rows, "
            "fewer features or a larger epsilon.",
            UserWarning,
            stacklevel=4,
        )


def mix(
    read: Callable[[], Moments],
    encoder: RowEncoder,
    *,
    epsilon: float,
    delta: float,
    sketch_size: int | Literal["auto"],
    variant: Variant,
    n_rows: int | None,
    random_state: Any,
    mechanism: str,
    ledger: Ledger | None = None,
    conditions: tuple[str, ...] = (),
) -> Release:
    """The release behind both estimators; ``read`` sums the table once the budget is known to be usable."""
    check.choice(("exact", "paper"), variant=variant)
    if ledger is not None and variant == "paper":
        raise ValueError("A ledger needs variant='exact': its noise is fixed when it is opened.")
    if ledger is None and check.positive(epsilon=epsilon) == math.inf:
        return open_release(read())
    k = _sketch_size(sketch_size, variant, encoder)
    if ledger is not None:
        k = k if sketch_size != "auto" else max(min(k, ledger.remaining().sketch_rows), encoder.n_columns)
        calibration = ledger.calibration(k)
    elif variant == "paper":
        error = eigenvalue_error_bound(encoder.n_columns, n_max=largest_table(n_rows))
        calibration = calibrate(
            epsilon, delta, sketch_size=k, scale="private", analysis="paper", eigenvalue_error=error
        )
    else:
        calibration = calibrate(epsilon, delta, sketch_size=k)
    warn_if_hopeless(encoder, calibration, n_rows)
    rng, _ = generator(random_state)
    moments = read()
    if ledger is not None:
        ledger.spend_calibration(calibration, note=mechanism)  # recorded first: a crash loses budget, not privacy
        conditions = (*conditions, LEDGER_BUDGET)
    return draw_release(moments, calibration, rng, mechanism=mechanism, n_rows=n_rows, conditions=conditions)


def papers_sketch_size(encoder: RowEncoder) -> int:
    """2.5 max(d, log 10¹⁰) as in the paper's experiments, but not less than the number of columns."""
    features = encoder.n_columns - encoder.n_targets
    return max(math.ceil(2.5 * max(features, math.log(1e10))), encoder.n_columns)


def _sketch_size(sketch_size: int | Literal["auto"], variant: Variant, encoder: RowEncoder) -> int:
    """The declared size, or a rule in the number of columns."""
    m = encoder.n_columns
    if isinstance(sketch_size, str):
        check.choice(("auto",), sketch_size=sketch_size)
        if variant == "exact":
            return automatic_sketch_size(m)
        return papers_sketch_size(encoder)
    return check_sketch_size(check.positive_integer(sketch_size=sketch_size), m)


def solve(release: Release, variant: Variant) -> Floats:
    """θ of every target on features and intercept, in encoded units: from the release alone."""
    p = release.encoder.n_columns - release.encoder.n_targets
    if math.isinf(release.certificate.epsilon):
        M = release.second_moment()
        return least_squares(M[:p, :p], M[:p, p:])
    if variant == "paper":
        W = release.noisy_second_moment
        return as_published(W[:p, :p], W[:p, p:])
    M = release.second_moment()
    return cleaned_ridge(M[:p, :p], M[:p, p:], entry_noise=release.entry_noise)


def regression_problem(release: Release, names: list[str], output: int) -> Problem:
    """One target of a release of (x, intercept, y) as an inference problem, the intercept first."""
    encoder = release.encoder
    d, p = encoder.n_features, encoder.n_columns - encoder.n_targets
    rows = np.array([d, *range(d)] if encoder.intercept else range(d))
    y = p + output
    W, noise = release.noisy_second_moment, release.noise_variance
    centre, scale = encoder.feature_map
    target_centre, target_scale = (float(a[output]) for a in encoder.target_map)
    slopes = target_scale / scale
    total = float(W[y, y] - noise)
    if not encoder.intercept:
        to_user, offset = np.diag(slopes), np.zeros(d)
    else:
        constant = encoder.encoded_intercept * encoder.row_norm
        to_user = np.diag([target_scale * constant, *slopes])
        to_user[0, 1:] = -slopes * centre
        offset = np.array([target_centre, *np.zeros(d)])
        total -= float(W[d, y]) ** 2 / max(float(W[d, d]) - noise, 1e-300)
    return Problem(
        W_xx=W[np.ix_(rows, rows)],
        w_xy=W[rows, y],
        w_yy=float(W[y, y]),
        response_noise=noise,
        noise_variance=noise,
        sketch_size=release.sketch_size if noise else 0,
        names=("(intercept)", *names) if encoder.intercept else tuple(names),
        to_user=to_user,
        offset=offset,
        groups={},
        total=total,
        response_name="y",
    )


# ---------------------------------------------------------------------------------------------------------------
# Estimators
class LinearMixing(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Private linear regression from one Gaussian sketch of the table.

    Parameters
    ----------
    epsilon, delta : float
        The privacy budget. ``epsilon=float("inf")`` gives least squares, not private.
    data_norm : float, optional
        Bound on the Euclidean norm of a row of features, after the map of ``bounds_X`` if there is one. A longer row is
        multiplied as a whole, target included, so that linear relations survive. Default: what ``bounds_X`` implies.
    bounds_X : (lower, upper), optional
        Scalars or one value per feature. Features are clipped to them and mapped to [-1, 1].
    bounds_y : (lower, upper)
        Targets are clipped to them.
    fit_intercept : bool
        Without one nothing is centred, and bounds are widened to be symmetric about 0.
    sketch_size : int or "auto"
        Rows of the sketch. ``"auto"`` is 10⁶, or 500 per column if that is more, for the exact variant, and
        2.5 max(d, log 10¹⁰) for the paper's: functions of public quantities.
    variant : {"exact", "paper"}
        ``"exact"``: exact accounting, noise alone, cleaned ridge. ``"paper"``: Algorithm 2 of arXiv:2505.24603v2 with
        Theorem 1, corrected where it is not private (docs/privacy.md).
    n_rows : int, optional
        The number of rows, if it is public. It sharpens the bound on rounding errors and allows a warning, before
        anything is spent, if the budget is hopeless.
    ledger : Ledger, optional
        Where the release is recorded before its noise is drawn. Its budget, which covers all of its releases together,
        takes the place of ``epsilon`` and ``delta``.
    random_state : int or numpy Generator, optional
        None is the secure generator. A seed is for tests: whoever knows it can remove the noise.

    Attributes
    ----------
    coef_ : array (features,) or (targets, features)
        In the units of the table.
    intercept_ : float or array (targets,)
        0 without an intercept.
    release_ : Release
        The private sketch that everything was computed from.
    privacy_ : Certificate
        What was spent, and what the guarantee rests on.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        data_norm: float | None = None,
        bounds_X: Bounds | None = None,
        bounds_y: Bounds | None = None,
        fit_intercept: bool = True,
        sketch_size: int | Literal["auto"] = "auto",
        variant: Variant = "exact",
        n_rows: int | None = None,
        ledger: Ledger | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.sketch_size = sketch_size
        self.variant = variant
        self.n_rows = n_rows
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> LinearMixing:
        """Release a sketch of (X, y) and fit from it.

        Parameters
        ----------
        X : array (rows, features)
        y : array (rows,) or (rows, targets)
        """
        X, y = read_table(self, X, y)
        encoder = self.encoder(X.shape[1], 1 if y.ndim == 1 else y.shape[1])
        read = functools.partial(table_moments, X, y, encoder, n_rows=self.n_rows)
        return self._fit_release(self._mix(read, encoder), single=y.ndim == 1)

    def fit_moments(self, moments: Moments) -> LinearMixing:
        """Release a sketch of a table that is summed up already, and fit from it: one pass over the rows, many fits.

        Each fit spends its own budget.

        Parameters
        ----------
        moments : Moments
            Of rows encoded by :meth:`encoder`: ``accumulate(blocks, model.encoder(n_features))``. One target gives
            ``coef_`` of shape (features,).
        """
        encoder = self.encoder(*features_and_targets(moments))
        release = self._mix(functools.partial(summed_up, moments, encoder, n_rows=self.n_rows), encoder)
        forget_names(self, encoder.n_features)
        return self._fit_release(release, single=encoder.n_targets == 1)

    def encoder(self, n_features: int, n_targets: int = 1) -> RowEncoder:
        """How rows are encoded under the declared bounds."""
        return declare_encoder(
            n_features,
            n_targets,
            data_norm=self.data_norm,
            bounds_X=self.bounds_X,
            bounds_y=self.bounds_y,
            fit_intercept=self.fit_intercept,
            weight="balanced" if self.variant == "exact" else "paper",
        )

    def _mix(self, read: Callable[[], Moments], encoder: RowEncoder) -> Release:
        return mix(
            read,
            encoder,
            epsilon=self.epsilon,
            delta=self.delta,
            sketch_size=self.sketch_size,
            variant=self.variant,
            n_rows=self.n_rows,
            ledger=self.ledger,
            random_state=self.random_state,
            mechanism="LinearMixing",
        )

    def _fit_release(self, release: Release, *, single: bool) -> LinearMixing:
        """Fit from a private release alone."""
        coef, intercept = in_user_units(solve(release, self.variant), release.encoder)
        self.coef_ = coef[0] if single else coef
        self.intercept_ = float(intercept[0]) if single else intercept
        self.release_ = release
        self.privacy_ = release.certificate
        return self

    def summary(self, *, target: Target = "table", output: int = 0) -> Summary:
        """Standard errors, p-values and intervals, from the release alone (:mod:`gaussmix.inference`).

        The coefficients in it are estimated without the ridge that makes :attr:`coef_` predict well.

        Parameters
        ----------
        target : {"ridge", "table", "population"}
            ``"population"`` needs ``n_rows``.
        output : int
            Which target column, of several.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        problem = regression_problem(self.release_, [str(name) for name in names], output)
        return summarise(problem, target=target, n=self.n_rows if target == "population" else None)

    def predict(self, X: ArrayLike) -> Floats:
        """Predicted targets, shape (rows,) or (rows, targets)."""
        check_is_fitted(self)
        rows: Floats = validate_data(self, X, reset=False)
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on tables as small as scikit-learn's checks, noise exceeds the signal
        return tags


class LogOdds(ClassifierMixin, BaseEstimator):
    """What classifiers with linear log odds share, once they have ``coef_``, ``intercept_`` and ``classes_``."""

    coef_: Floats
    intercept_: Floats
    classes_: NDArray[Any]

    def decision_function(self, X: ArrayLike) -> Floats:
        """Log odds of the second class."""
        check_is_fitted(self)
        rows: Floats = validate_data(self, X, reset=False)
        return np.asarray(rows @ self.coef_[0] + self.intercept_[0])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities of both classes, shape (rows, 2)."""
        second = special.expit(self.decision_function(X))
        return np.column_stack([1 - second, second])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predicted labels."""
        log_odds = self.decision_function(X)
        return np.asarray(self.classes_[(log_odds > 0).astype(int)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # on tables as small as scikit-learn's checks, noise exceeds the signal
        return tags


class LogisticMixing(LogOdds):
    """Private logistic regression through a quadratic surrogate, from one Gaussian sketch of the table.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, fit_intercept, sketch_size, variant, n_rows, ledger, random_state
        As in :class:`LinearMixing`.
    classes : (first, second), optional
        The two labels. Without them they are taken from y, and the certificate says that they are taken to be public.
    surrogate_radius : float
        The surrogate approximates the logistic loss for margins y·xθ in [-radius, radius].

    Attributes
    ----------
    classes_ : array (2,)
        The labels.
    coef_ : array (1, features)
        In the units of the table.
    intercept_ : array (1,)
        0 without an intercept.
    release_, privacy_
        As in :class:`LinearMixing`.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        data_norm: float | None = None,
        bounds_X: Bounds | None = None,
        classes: ArrayLike | None = None,
        fit_intercept: bool = True,
        surrogate_radius: float = 6.0,
        sketch_size: int | Literal["auto"] = "auto",
        variant: Variant = "exact",
        n_rows: int | None = None,
        ledger: Ledger | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.surrogate_radius = surrogate_radius
        self.sketch_size = sketch_size
        self.variant = variant
        self.n_rows = n_rows
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> LogisticMixing:
        """Release a sketch of (X, ±1) and fit from it.

        Parameters
        ----------
        X : array (rows, features)
        y : array (rows,)
            Two labels of any type.
        """
        scale = response_scale(self.surrogate_radius)
        X, signs, self.classes_ = read_classes(self, X, y, self.classes)
        encoder = declare_encoder(
            X.shape[1],
            1,
            data_norm=self.data_norm,
            bounds_X=self.bounds_X,
            bounds_y=(-1.0, 1.0),
            fit_intercept=self.fit_intercept,
            weight="balanced" if self.variant == "exact" else "paper",
        )
        release = mix(
            functools.partial(table_moments, X, signs, encoder, n_rows=self.n_rows),
            encoder,
            epsilon=self.epsilon,
            delta=self.delta,
            sketch_size=self.sketch_size,
            variant=self.variant,
            n_rows=self.n_rows,
            ledger=self.ledger,
            random_state=self.random_state,
            mechanism="LogisticMixing",
            conditions=() if self.classes is not None else (LABELS_PUBLIC,),
        )
        # The response is ±1 in the sketch, so that C_Y = 1, and the solution is scaled afterwards.
        coef, intercept = in_user_units(scale * solve(release, self.variant), encoder)
        self.coef_, self.intercept_ = coef, intercept
        self.release_, self.privacy_ = release, release.certificate
        return self
