"""Releases: noisy second moments of a table with a privacy certificate, and the models computed from them.

**Private**: everything here is a function of a release and of declared quantities. Estimators, intervals and reports
use nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import narwhals as nw
import numpy as np

from gaussmix._files import write_whole
from gaussmix._types import Floats
from gaussmix.accounting.accounts import NonPrivate
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.data.columns import Categorical, Numeric
from gaussmix.data.schema import Schema, response_and_predictors
from gaussmix.errors import ArgumentError, ArgumentTypeError, DamagedError, NotPrivateError
from gaussmix.models.declared import model_budget
from gaussmix.models.descriptive import (
    Anova,
    Correlations,
    Crosstab,
    Histogram,
    anova,
    correlations,
    crosstab,
    describe,
    group_means,
    histogram,
    quantiles,
    ratio,
    total,
)
from gaussmix.models.design import Reference
from gaussmix.models.families import LOGIT, POISSON, PROBIT, Family, family_of
from gaussmix.models.glm import GeneralizedLinearModel, MultinomialModel, fit_glm, fit_glm_predictor, fit_multinomial
from gaussmix.models.instruments import InstrumentalModel, fit_instruments
from gaussmix.models.linear import Predictor, RegressionModel, fit_predictor, fit_regressions, row_weights
from gaussmix.models.moments import SecondMoments, features, second_moments, simulated_moments
from gaussmix.models.rendering import estimated_on, in_html, void_mark
from gaussmix.models.results import Frame, ResultTable, as_frame
from gaussmix.models.synthetic import MARK, synthetic_rows
from gaussmix.releases import file as release_file
from gaussmix.releases.certificate import Certificate, models_public
from gaussmix.releases.declared import mu_of_sum
from gaussmix.releases.file import check_signature
from gaussmix.releases.marginals import MarginalPlan
from gaussmix.releases.preconditioning import accounts_for, budgets_of
from gaussmix.releases.transcript import FALSE_ALARM_RATE, Transcript

__all__ = ["Release", "load"]


@dataclass(frozen=True, eq=False)
class Release:
    """Private second moments of a table, from which any number of models can be computed.

    Raises
    ------
    NotPrivateError
        If the certificate claims more privacy than the noise gives.

    Attributes
    ----------
    statistic : Transcript
        The noisy outputs of the mechanism.
    certificate : Certificate
        The privacy guarantee.
    path : Path or None
        The file that ``release(out=)`` wrote.
    """

    statistic: Transcript
    certificate: Certificate
    path: Path | None = None

    def __post_init__(self) -> None:
        self.verify()
        void, declared = self.certificate.void_words, self.certificate.schema
        if (self.statistic.void, self.statistic.declared) != (void, declared):  # models print what these say first
            object.__setattr__(self, "statistic", replace(self.statistic, void=void, declared=declared))

    def verify(self) -> None:
        """Check that the account of the certificate covers exactly the outputs, with their noise.

        Raises
        ------
        NotPrivateError
            If the certificate claims more privacy than the noise of the outputs gives.
        """
        transcript, certificate = self.statistic, self.certificate
        account, m, passes = certificate.account, transcript.schema.n_columns, transcript.passes
        if certificate.schema.coded(self.thresholds) != self.schema:
            raise ArgumentError("The columns of the release do not match its certificate.")
        transcript.check()
        bounded = certificate.bounded_unit
        if transcript.unit != bounded:
            raise NotPrivateError("The privacy unit of the release does not match its certificate.")
        if isinstance(account, NonPrivate):
            if not transcript.exact or transcript.models:
                raise NotPrivateError(
                    "The certificate is for a release without noise, but the release has noise. Do not publish the "
                    "file; obtain it again."
                )
            return
        if not isinstance(account, LatticeAccount):
            raise NotPrivateError(
                "The certificate does not describe a release of this kind. Do not publish the file; obtain it again."
            )
        plan = None if transcript.marginals is None else transcript.marginals.plan
        persons, marginals = bounded is not None, None if plan is None else plan.coordinates
        share = transcript.model_share
        models = None
        if transcript.models:
            models = model_budget(transcript.schema, [output.model for output in transcript.models], share)
        if not set(models_public(models)) <= set(certificate.conditions):
            raise NotPrivateError(
                "The declared models of the release do not match its certificate. Do not publish the file; obtain it "
                "again."
            )
        if not accounts_for(account, len(passes), m, models=models, persons=persons, marginals=marginals):
            raise NotPrivateError(
                "The passes of the release do not match its certificate. Do not publish the file; obtain it again."
            )
        budgets = budgets_of(account, models, marginals=plan is not None)
        if tuple(output.mu for output in passes) != budgets.passes:
            raise NotPrivateError("The noise of a pass does not match the certificate.")
        for output, parts in zip(transcript.models, budgets.models, strict=True):
            of_sums = tuple(mu_of_sum(part, certificate.neighbours) for part in parts[1:-1])
            if (output.mu, output.vector_mu) != (parts, of_sums):
                raise NotPrivateError("The noise of a declared model does not match the certificate.")
        if transcript.marginals is not None and plan is not None:
            most = 1 if bounded is None else bounded.max_contributions
            if plan != MarginalPlan(certificate.schema, plan.tables, most, certificate.neighbours):
                raise NotPrivateError("The columns or the privacy unit of the marginals do not match the certificate.")
            if transcript.marginals.noise_p_value < FALSE_ALARM_RATE:
                raise NotPrivateError("The marginals have less noise than the certificate states.")
            if transcript.marginals.mu != budgets.marginals:
                raise NotPrivateError("The noise of the marginals does not match the certificate.")
        if transcript.noise_p_value < FALSE_ALARM_RATE:
            raise NotPrivateError("The passes have less noise than the certificate states.")

    @property
    def schema(self) -> Schema:
        """The schema of the passes, in which the thresholds of top-coded numbers are the bounds."""
        return self.statistic.schema

    @property
    def thresholds(self) -> dict[str, tuple[float, float]]:
        """Lower and upper thresholds of the top-coded numbers, in original units."""
        return self.schema.thresholds_within(self.certificate.schema)

    @property
    def tables(self) -> tuple[tuple[str, str], ...]:
        """Pairs of columns whose two-way tables were declared and counted."""
        return () if self.statistic.marginals is None else self.statistic.marginals.plan.tables

    def topcode(self, data: Any) -> Any:
        """Apply the thresholds of the release to a data frame, for comparison with other software.

        Parameters
        ----------
        data : data frame
            A frame of pandas, polars or another library that narwhals supports. A frame of the same type is returned.
        """
        try:
            frame = nw.from_native(data)
        except TypeError:
            raise ArgumentTypeError(
                f"data must be a data frame of pandas, polars or a similar library, got {type(data).__name__}. Read "
                "files first."
            ) from None
        coded = [nw.col(name).clip(*ends) for name, ends in self.thresholds.items() if name in frame.columns]
        return frame.with_columns(*coded).to_native()

    def weights(self, data: Any) -> Floats:
        """Return the weights that models give to the rows of a table, for comparison with other software.

        Norm clipping in the last pass gives a row of high leverage a weight below 1, so that coefficients are those of
        weighted least squares, exactly. The weight of a row is computed from that row and the release. With it,
        ``statsmodels.api.WLS`` gives the coefficients that the intervals are for::

            frame = release.topcode(frame)
            smf.wls("wage ~ education + age", frame, weights=release.weights(frame)).fit()

        The weights of sensitive rows are sensitive.

        Parameters
        ----------
        data : table
            A table with all columns of the release, and with its privacy unit, if it has one.

        Returns
        -------
        array (rows,)
            Weights in [0, 1]; 0 for rows with missing values that the schema drops. With declared row weights,
            multiply by them.
        """
        return row_weights(self.statistic, data)

    @property
    def second_moment(self) -> Floats:
        """An unbiased estimate of the Gram matrix of encoded rows. It may be indefinite."""
        return self.statistic.second_moment

    # -- models ----------------------------------------------------------------------------------------------------
    @overload
    def ols(self, response: str, predictors: Sequence[str] | None = None) -> RegressionModel: ...

    @overload
    def ols(self, response: list[str], predictors: Sequence[str] | None = None) -> dict[str, RegressionModel]: ...

    def ols(
        self, response: str | list[str], predictors: Sequence[str] | None = None
    ) -> RegressionModel | dict[str, RegressionModel]:
        """Fit a linear regression of one column on others; for several responses, a dictionary of models.

        It is least squares on the columns that the release identifies (:mod:`gaussmix.models.inference`). For
        prediction at small budgets see :meth:`predictor`.

        Parameters
        ----------
        response : str or list of str
            Numeric or boolean columns; or, in place of both arguments, a formula of declared columns and terms,
            ``"log(wage) ~ poly(age, 2) + sex"``.
        predictors : list of str, optional
            Columns of the table; default: all columns that are not responses.
        """
        if isinstance(response, str):
            response, predictors = response_and_predictors(response, predictors)
        names = [response] if isinstance(response, str) else response
        models = fit_regressions(self.statistic, names, predictors, self.certificate)
        return models[response] if isinstance(response, str) else models

    def predictor(
        self, response: str, predictors: Sequence[str] | None = None, *, family: str = "linear", level: object = None
    ) -> Predictor:
        """Fit a predictor of one column from others: a ridge regression tuned for prediction under the noise.

        Parameters
        ----------
        response : str
            A column; or a formula in place of both arguments.
        predictors : list of str, optional
            Columns of the table; default: all others.
        family : str
            ``"linear"`` or one of ``gaussmix.models.FAMILIES``, whose mean is predicted.
        level : object, optional
            As in :meth:`logit`.
        """
        response, predictors = response_and_predictors(response, predictors)
        if family == "linear":
            return fit_predictor(self.statistic, response, predictors)
        return fit_glm_predictor(self.statistic, family_of(family), response, predictors, level)

    def iv(
        self, response: str, predictors: Sequence[str] | None = None, *, instruments: Sequence[str]
    ) -> InstrumentalModel:
        """Fit a linear regression by two-stage least squares (:mod:`gaussmix.models.instruments`).

        Parameters
        ----------
        response : str
            A numeric or boolean column; or a formula in place of both arguments.
        predictors : list of str
            Columns of the table. Those that are not among the instruments are endogenous.
        instruments : list of str
            Excluded instruments, and the exogenous predictors.
        """
        if isinstance(response, str):
            response, predictors = response_and_predictors(response, predictors)
        return fit_instruments(self, response, predictors, instruments)

    def logit(
        self, response: str, predictors: Sequence[str] | None = None, *, level: object = None
    ) -> GeneralizedLinearModel:
        """Fit a logistic regression of a boolean column, or of one level, by approximate maximum likelihood.

        The method is described in :mod:`gaussmix.models.likelihood`.

        Parameters
        ----------
        response : str
            A boolean column or a category; or a formula in place of both arguments.
        predictors : list of str, optional
            Columns and terms of the release; default: all others.
        level : object, optional
            The level that is compared with all others. Required for a category with more than two levels; for a
            boolean column true, which is the default, or false.
        """
        return self._glm(LOGIT, response, predictors, level=level)

    def probit(
        self, response: str, predictors: Sequence[str] | None = None, *, level: object = None
    ) -> GeneralizedLinearModel:
        """Fit a probit regression by the moments Σ xy; arguments as in :meth:`logit`."""
        return self._glm(PROBIT, response, predictors, level=level)

    def poisson(
        self, response: str, predictors: Sequence[str] | None = None, *, exposure: str | None = None
    ) -> GeneralizedLinearModel:
        """Fit a Poisson regression of a count by approximate maximum likelihood: rate ratios with intervals.

        Parameters
        ----------
        response : str
            A number whose declared lower bound is 0 or above; or a formula in place of both arguments.
        predictors : list of str, optional
            Columns and terms of the release; default: all others.
        exposure : str, optional
            A numeric column that multiplies the mean, such as the duration of a policy.
        """
        return self._glm(POISSON, response, predictors, exposure=exposure)

    def mnlogit(self, response: str, predictors: Sequence[str] | None = None) -> MultinomialModel:
        """Fit a multinomial logistic regression of a category, by approximate maximum likelihood.

        Parameters
        ----------
        response : str
            A category with more than two levels; or a formula in place of both arguments.
        predictors : list of str, optional
            Columns and terms of the release; default: all others.
        """
        response, predictors = response_and_predictors(response, predictors)
        return replace(fit_multinomial(self.statistic, response, predictors), certificate=self.certificate)

    def fit(
        self, family: str, response: str, predictors: Sequence[str] | None = None, **options: Any
    ) -> GeneralizedLinearModel:
        """Fit a model of a named family: ``release.fit("poisson", "visits", ["age"])``.

        Parameters
        ----------
        family : str
            One of ``gaussmix.models.FAMILIES``.
        response : str
            A column; or a formula in place of both arguments.
        predictors : list of str, optional
            Columns of the table; default: all others.
        **options
            ``level`` or ``exposure``.
        """
        return self._glm(family_of(family), response, predictors, **options)

    def _glm(
        self, family: Family, response: str, predictors: Sequence[str] | None, **options: Any
    ) -> GeneralizedLinearModel:
        response, predictors = response_and_predictors(response, predictors)
        return replace(fit_glm(self.statistic, family, response, predictors, **options), certificate=self.certificate)

    def pca(self, columns: Sequence[str] | None = None) -> tuple[Floats, Floats, tuple[str, ...]]:
        """Return principal components of encoded columns, about their means if the release has an intercept.

        Returns
        -------
        variances : array (p,)
            Sums of squares along the components, largest first. Noise may make the last ones negative.
        components : array (p, p)
            One component per row.
        names : tuple of str
            Names of the encoded columns.
        """
        schema, M = self.schema, self.second_moment
        chosen = list(schema.parts) if columns is None else [part for text in columns for part in schema.resolve(text)]
        rows = np.array([index for name in chosen for index in schema.groups[name]])
        block = M[np.ix_(rows, rows)]
        if schema.intercept and M[-1, -1] > 0:
            block = block - np.outer(M[rows, -1], M[rows, -1]) / M[-1, -1]
        variances, vectors = np.linalg.eigh(block)
        return variances[::-1], vectors.T[::-1], tuple(schema.names[i] for i in rows)

    def describe(self, columns: Sequence[str] | None = None, *, alpha: float = 0.05) -> ResultTable:
        """Describe every column of the declared table, with intervals of level 1 - alpha.

        Numbers have mean, standard deviation, quartiles, and shares of missing values and of values beyond the
        thresholds at which models code them ("share above 16.6"); categories and booleans have shares and
        counts of levels. With row weights all statistics are weighted. Releases in one pass have no quartiles.

        Parameters
        ----------
        columns : list of str, optional
            Columns to describe. Default: all.
        alpha : float
        """
        return describe(self, columns, alpha=alpha)

    def quantiles(
        self, columns: Sequence[str] | None = None, q: Sequence[float] = (0.25, 0.5, 0.75), *, alpha: float = 0.05
    ) -> ResultTable:
        """Return quantiles of numeric columns of the declared table, with intervals of level 1 - alpha.

        Interval ends are edges of the public cells in which rows were counted, so that intervals are valid for any
        distribution of rows within the cells. Requires a release in several passes.

        Parameters
        ----------
        columns : list of str, optional
            Numeric columns. Default: all.
        q : list of float
            Probabilities between 0 and 1.
        alpha : float
        """
        return quantiles(self, columns, q, alpha=alpha)

    def histogram(self, column: str, *, bins: int | None = None) -> Histogram:
        """Return noisy counts of a numeric column of the declared table in bins; requires a release in several passes.

        Parameters
        ----------
        column : str
        bins : int, optional
            Number of bins of about equal width, made of whole cells; 0 for the cells themselves, which become narrower
            towards the bounds. Default: the largest number from 32 down to 2 for which the average count of a bin is at
            least four standard errors of a cell.
        """
        return histogram(self, column, bins)

    def total(self, column: str, *, alpha: float = 0.05) -> ResultTable:
        """Return the sum of a numeric column of the declared table, or the number of rows with a true boolean."""
        return total(self, column, alpha=alpha)

    def ratio(self, numerator: str, denominator: str, *, alpha: float = 0.05) -> ResultTable:
        """Return the ratio of the totals of two columns of the declared table, such as claims per exposure."""
        return ratio(self, numerator, denominator, alpha=alpha)

    def corr(self, columns: Sequence[str] | None = None, *, given: Sequence[str] = ()) -> Correlations:
        """Return correlations of columns, with levels as 0 and 1; partial correlations if ``given`` is not empty.

        They are for the rows that models use, with top-coded numbers and clipped norms. ``conf_int()`` of the result
        returns intervals.
        """
        return correlations(self, columns, given)

    def crosstab(self, rows: str, columns: str) -> Crosstab:
        """Cross-tabulate two categorical or boolean columns, with intervals, shares and a test of independence.

        Pairs declared with ``tables=`` (:attr:`tables`) were counted directly. Other pairs are computed from the Gram
        matrix, with more noise. Margins are the counts of levels.
        """
        return crosstab(self, rows, columns)

    def means(self, response: str, by: str, *, alpha: float = 0.05) -> ResultTable:
        """Return means of a numeric or boolean column in the levels of ``by``, with intervals of level 1 - alpha.

        Means are for the rows that models use, with top-coded numbers and clipped norms.
        """
        return group_means(self, response, by, alpha=alpha)

    def anova(self, response: str, by: str) -> Anova:
        """Test whether the means of ``response`` differ between the levels of ``by`` (analysis of variance)."""
        return anova(self, response, by)

    def synthetic(self, n_rows: int, *, seed: int | np.random.Generator | None = None, frame: Frame = "arrow") -> Any:
        """Draw synthetic rows within the declared bounds and levels.

        Up to noise they match the distributions of single columns and, approximately, the correlations of pairs, and
        nothing else (:mod:`gaussmix.models.synthetic`). A warning is issued if regressions on them would differ from
        those of the release. The column of row weights is omitted: rows have equal weights.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        seed : int or Generator, optional
        frame : {"arrow", "pandas", "polars"}
            Arrow tables have the key ``gaussmix.synthetic`` in their metadata, pandas frames in ``attrs``. Polars
            frames cannot store it.
        """
        table = synthetic_rows(self, n_rows, seed)
        found = as_frame(table, frame)
        if frame == "pandas":
            found.attrs[MARK] = table.schema.metadata[MARK.encode()].decode()
        return found

    def moments(self, *, reference: Reference | None = None) -> SecondMoments:
        """Return number of rows, means and covariance matrix of all columns in original units, for other estimators.

        They are unbiased up to terms of second order and of the rows that models use, with top-coded numbers and
        clipped norms. Noise may make the covariance matrix indefinite.

        Parameters
        ----------
        reference : mapping of str to level, optional
            Reference levels, which have no column: ``{"sex": "f"}``. Default: as in models.
        """
        own, coding = features(self.statistic.noisy, self.schema, reference)
        return second_moments(own, self.schema, coding)

    def draws(
        self,
        n: int,
        *,
        reference: Reference | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> list[SecondMoments]:
        r"""Simulate moments with the noise of the release, so that any estimator computed from moments gets intervals.

        A parametric bootstrap. With M the released second moment and N = BBᵀ the shape of its noise, each draw is

        .. math:: M + \sqrt{1 + b^2}\; B\, W B^\top ,

        in original units. W is a fresh symmetric matrix of independent normal numbers, with variance 1 off the
        diagonal and 2 on it, and b the allowance for norm clipping (:mod:`gaussmix.models.inference`). The standard
        deviation of an estimate over the draws is its standard error due to privacy noise, for the coefficients of the
        table: for least squares that of ``ols().bse`` if all directions are well above the noise. Sampling error is
        not included. Compute the estimate from :meth:`moments`, which have the same columns.

        Parameters
        ----------
        n : int
            Number of draws.
        reference : mapping of str to level, optional
            As in :meth:`moments`.
        random_state : int or Generator, optional
            Seed of the simulation, which has no effect on privacy.

        Examples
        --------
        >>> import numpy as np, gaussmix as gm
        >>> rows = {"x": np.linspace(-1, 1, 10_000), "y": np.linspace(0, 1, 10_000) ** 2}
        >>> private = gm.release(rows, {"x": [-1, 1], "y": [0, 1]}, epsilon=1.0, delta=1e-6)
        >>> draws = private.draws(200, random_state=0)
        >>> slopes = [own.covariance[0, 1] / own.covariance[0, 0] for own in draws]
        >>> bool(0.5 < np.std(slopes) / private.ols("y").bse["x"] < 2)
        True
        """
        return simulated_moments(self.statistic, n, reference=reference, random_state=random_state)

    # -- the file ---------------------------------------------------------------------------------------------------
    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the release to one Parquet file, atomically (:mod:`gaussmix.releases.file`).

        An existing file is replaced only with ``force``. A suffix of another format, such as ``.csv``, is an error.
        """
        release_file.check_name(path)
        write_whole(path, self.to_bytes(), mode=self.file_mode, force=force)

    def to_bytes(self) -> bytes:
        """Return the bytes that :meth:`save` writes."""
        return release_file.as_bytes(self.statistic, self.certificate)

    @classmethod
    def from_bytes(cls, content: bytes, *, name: str | Path = "This") -> Release:
        """Read and verify the output of :meth:`to_bytes`. Messages refer to it by ``name``."""
        statistic, certificate = release_file.read(content, name)
        try:
            return cls(statistic, certificate)
        except NotPrivateError as error:
            raise NotPrivateError(f"{name} was edited or is damaged: {error}") from None
        except ArgumentError as error:
            raise DamagedError(f"{name} was edited or is damaged: {error} Obtain the file again.") from None

    @property
    def file_mode(self) -> int:
        """Mode of the file: readable by its owner only if ε is infinite."""
        return 0o600 if math.isinf(self.certificate.epsilon) else 0o644

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the release, as stored in its file."""
        return release_file.fingerprint(self.statistic, self.certificate)

    def __repr__(self) -> str:
        m, passes, void = self.schema.n_columns, len(self.statistic.passes), void_mark(self.certificate.void_words)
        return f"Release({void}{m} columns, passes={passes}, epsilon={self.certificate.epsilon:g})"

    def _repr_html_(self) -> str:
        """Return the declared columns and the certificate, for notebooks."""
        rows = []
        for name, column in self.certificate.schema.columns.items():
            kind, coded = type(column).__name__.lower(), self.statistic.coded.get(name, "")
            bounds = f"{column.lower:g} to {column.upper:g}" if isinstance(column, Numeric) else ""
            levels = ", ".join(column.labels) if isinstance(column, Categorical) else ""
            rows.append([name, kind, bounds or levels, coded.removeprefix(f"{name} ")])
        words = filter(None, [self.certificate.void_words, estimated_on(self.statistic.noisy)])
        table = in_html("release", ["column", "type", "bounds or levels", "top-coding"], rows, list(words))
        return table + self.certificate._repr_html_()


def load(path: str | Path, key: str | Path | bytes | None = None) -> Release:
    """Read a release and verify its checksum, its consistency and the claim of its certificate.

    The file is read once, so that signature and content refer to the same bytes.

    Parameters
    ----------
    path : path
    key : path or bytes, optional
        Ed25519 public key in PEM format, or the path of its file. A signature by this key must then be in the file
        ``FILE.sig`` next to the release.

    Raises
    ------
    DamagedError
        If the file is not a release, is damaged or edited, has a newer format, or is not signed by the key.
    NotPrivateError
        If its certificate claims more privacy than its noise gives.
    """
    content = release_file.read_bytes(path, signed=key is not None)
    if key is not None:
        check_signature(content, path, key)
    return Release.from_bytes(content, name=path)
