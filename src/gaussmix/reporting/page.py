"""One page about a release, for a reviewer and for its readers: post-processing, which costs no privacy.

The page holds the privacy statement, the privacy curve, coefficients with intervals for every target, and noise
against signal. It is one HTML file that loads nothing. Everything in it comes from the release and its certificate: the
same release gives the same page. Needs the extra ``gaussmix[plots]``.

Fields of the statement follow NIST SP 800-226; notation follows docs/notation.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gaussmix import _validation as check
from gaussmix import accounting
from gaussmix._files import write_whole
from gaussmix.accounting import Relation
from gaussmix.inference import NOT_IDENTIFIED, Summary
from gaussmix.releases import ADVICE, Certificate, Release
from gaussmix.sampling import SECURE
from gaussmix.schema import Boolean, Categorical, EncodedColumn, Numeric, Schema

if TYPE_CHECKING:
    import jinja2

__all__ = ["PrivacyCurve", "privacy_curve", "render", "write"]

Floats = NDArray[np.float64]

_DELTA_MIN, _DELTA_MAX = 1e-12, 1e-1
_STEPS = (1, 1.1, 1.25, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3.2, 3.6, 4, 4.5, 5, 5.6, 6.3, 7.1, 8, 9)  # about 10^(i/20)
_KNOTS: dict[Relation, int] = {"zero-out": 201, "replace-one": 61}  # under half a second, and about two seconds
_LEVELS_SHOWN = 40


def write(release: Release, path: str | Path, *, alpha: float = 0.05, targets: Sequence[str] | None = None) -> None:
    """Write the page to a file, whole or not at all. Parameters as in :func:`render`."""
    write_whole(path, render(release, alpha=alpha, targets=targets).encode())


def render(release: Release, *, alpha: float = 0.05, targets: Sequence[str] | None = None) -> str:
    """The page as HTML.

    Parameters
    ----------
    release : Release
    alpha : float
        Intervals have level 1 - alpha.
    targets : list of str, optional
        Columns that may be chosen on the page; default: all numeric and boolean ones. Each costs a search per
        coefficient when the page is made.
    """
    alpha = check.in_interval(0, 1, alpha=alpha)
    environment = _environment()
    certificate = release.certificate
    curve = _curve_of(certificate)
    picture = None if curve is None else _picture(curve, certificate)
    models = [_model(release.regress(name).summary(), release, alpha) for name in _targets(release, targets)]
    signals = _signals(release)
    data = {
        "curve": [] if picture is None else picture.pop("positions"),
        "models": models,
        "noise": release.entry_noise,
        "signals": signals,
        "not_identified": NOT_IDENTIFIED,
    }
    style, script = _part("report.css"), _part("report.js")
    return environment.from_string(_part("report.html")).render(
        title=_title(release),
        banner=_banner(release, curve),
        plain=_plain(certificate),
        conditions=_conditions(certificate),
        fields=_fields(release, curve),
        assumed=_ASSUMED if math.isfinite(certificate.epsilon) else (),
        bounds=_bounds(release),
        parameters=[(name, _plain_value(value)) for name, value in certificate.parameters.items()],
        curve=picture,
        no_curve=_why_no_curve(certificate),
        level=f"{100 * (1 - alpha):.6g} %",
        targets=[model["target"] for model in models],
        no_models=_NO_MODELS if release.schema is None else "No column of this release can be explained by others.",
        signals=signals,
        signal_words=_SIGNAL_WORDS if release.noise_variance > 0 else "No noise was added to this release.",
        data=_embedded(data),
        style=_trusted(style),
        script=_trusted(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


# ---------------------------------------------------------------------------------------------------------------
# The template
def _environment() -> jinja2.Environment:
    try:
        import jinja2
    except ImportError as error:
        raise ImportError("Reports need jinja2: pip install 'gaussmix[plots]'.") from error
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


def _part(name: str) -> str:
    return resources.files("gaussmix").joinpath("templates", name).read_text(encoding="utf-8")


def _trusted(text: str) -> Any:
    """Text of this package, which goes into the page as it is."""
    from markupsafe import Markup

    return Markup(text)


def _embedded(data: Any) -> Any:
    """JSON that cannot end the script element it stands in, nor open a comment."""
    text = json.dumps(data, allow_nan=False)  # ASCII: no line separators either
    return _trusted(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _hash(text: str) -> str:
    """Of an inline part, for the page's own content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# ---------------------------------------------------------------------------------------------------------------
# The statement
_ASSUMED = (
    "A trusted curator held the rows, ran the library and saw its errors. The guarantee is about what the curator "
    "handed on: this release and what is computed from it.",
    "Bounds, levels and weights were fixed without looking at the rows. Software cannot check this.",
    "One person has one row. Somebody with several rows is protected less.",
    "The proofs are about real numbers. On the computer the sums over rows are exact, and what leaves is rounded to a "
    "public grid of about a millionth of the noise; this is not a proof that no floating-point attack exists.",
    "The guarantee speaks of this release. Others from the same rows add up, unless a ledger covers them together.",
    "How long the computation took is not protected.",
)
_NO_MODELS = "This release has no named columns, so no models are shown."
_SIGNAL_WORDS = (
    "Signal is the sum of squares of each encoded column (bounds mapped to plus and minus the column's weight), "
    "estimated from the release; noise is the standard deviation that privacy adds to an entry of the second moment "
    "where the table is empty. A column whose signal is near the noise says little."
)
_MIXING = ("release", "GaussMix", "LinearMixing", "LogisticMixing")
_MECHANISMS = dict.fromkeys(_MIXING, "Gaussian mixing: a Gaussian sketch of the table plus noise") | {
    "none": "None: the second moment itself",
    "SheffetMixing": "Sheffet's tested Gaussian sketch",
    "AdaSSP": "Noisy sufficient statistics (AdaSSP)",
    "ObjectivePerturbation": "Objective perturbation",
}
_LEDGER = "all releases of the ledger"


def _title(release: Release) -> str:
    if release.schema is None:
        return "a release without named columns"
    columns = len(release.schema.columns)
    return f"a release of a table with {columns} declared column{'s' * (columns != 1)}"


def _banner(release: Release, curve: PrivacyCurve | None) -> dict[str, str] | None:
    certificate = release.certificate
    if not math.isfinite(certificate.epsilon):
        return {
            "heading": "Not private.",
            "text": "ε is infinite: this release holds sums over the rows without noise. Treat it like the rows.",
        }
    if not certificate.is_private:
        return {"heading": "The guarantee is void.", "text": "The conditions below say why. Do not publish."}
    if curve is not None and not _agrees(release, curve):
        return {
            "heading": "The certificate does not fit the release.",
            "text": "ε, computed anew from the noise in the release, is larger than certified. Do not publish.",
        }
    return None


def _agrees(release: Release, curve: PrivacyCurve) -> bool:
    """Whether noise and sketch size give the certified pair; numbers of a file are taken on trust nowhere else."""
    certificate = release.certificate
    enough = certificate.parameters["gamma"] * certificate.row_norm**2 * (1 - 1e-9)
    return (
        release.noise_variance >= enough
        and release.sketch_size <= certificate.parameters["sketch_size"]
        and curve.certified_delta <= certificate.delta
    )


def _plain(certificate: Certificate) -> list[str]:
    """(ε, δ) in words; the numbers are rounded up."""
    epsilon, delta = certificate.epsilon, certificate.delta
    if not math.isfinite(epsilon):
        return ["Nothing is guaranteed: whoever sees this release may learn single rows from it."]
    times = f"{_up(math.exp(epsilon))} times" if epsilon < 700 else "more than 10³⁰⁰ times"
    caught = min(math.exp(min(epsilon, 700)) * 0.05 + delta, 1 - math.exp(-epsilon) * (0.95 - delta), 1.0)
    other = "one row were replaced by another" if certificate.relation == "replace-one" else "any one row were left out"
    void = ["The guarantee is void: see the conditions. Were it not for them, it would be this."]
    return void * (not certificate.is_private) + [
        f"The release would look nearly the same if {other}: whatever somebody concludes from it is at most {times} as "
        f"probable with the row as without it, and the other way round, but for a probability of {_one_in(delta)}.",
        "So, somebody who knows every other row and tests whether a person's row was used, and who is wrong about 5 % "
        f"of those who were not, finds at most {math.ceil(1000 * caught) / 10:g} % of those who were.",
        "Everything computed from the release, any number of models on this page or elsewhere, is covered at no "
        "further cost.",
    ]


def _conditions(certificate: Certificate) -> list[dict[str, Any]]:
    found = []
    for condition in certificate.conditions:
        kind, _, text = condition.partition(":")
        known = kind in ("void", "condition")
        found.append({"void": kind == "void", "text": text.strip() if known else condition})
    return sorted(found, key=lambda condition: not condition["void"])


@dataclass(frozen=True)
class _Field:
    name: str
    value: str
    note: str = ""


def _fields(release: Release, curve: PrivacyCurve | None) -> list[_Field]:
    certificate, parameters = release.certificate, release.certificate.parameters
    together = _LEDGER in parameters.get("delta_split", {})
    whole = "for all releases through one ledger together, this one among them: do not add them up" if together else ""
    anew = "" if curve is None else f"computed anew for this page: δ = {_up(curve.certified_delta)} at this ε"
    secure = certificate.generator == SECURE
    found = [
        _Field("Unit of privacy", "one row of the table"),
        _Field("Neighbouring relation", certificate.relation, ADVICE.get(certificate.relation, "")),
        _Field("ε (epsilon)", _number(certificate.epsilon), whole),
        _Field("δ (delta)", _number(certificate.delta), "" if together else anew),
        _Field("Bound on a row", _number(certificate.row_norm), "norm of an encoded row; bounds per column below"),
        _Field(
            "Mechanism",
            _MECHANISMS.get(certificate.mechanism, certificate.mechanism),
            f"named “{certificate.mechanism}” in the certificate",
        ),
        _Field("Noise", *_noise(release)),
        _Field("Sketch size", f"{release.sketch_size:,} rows" if release.noise_variance else "no sketch"),
        _Field("Analysis", certificate.analysis, "what ε and δ were computed with"),
        _Field(
            "Generator",
            certificate.generator,
            "ChaCha20, keyed by the operating system" if secure else "not the secure generator",
        ),
        _Field("Trust model", "central: one trusted curator holds the rows"),
        _Field("Library version", f"gaussmix {certificate.version}" if certificate.version else "not recorded"),
        _Field("Time", certificate.time or "not recorded", "when the release was made, UTC"),
    ]
    if release.schema is not None:
        found.append(_Field("Schema", release.schema.fingerprint, "SHA-256 of the declared columns"))
        found.append(_Field("Release", release._metadata()["sha256"], "SHA-256, as stored in the release's file"))
    return found


def _noise(release: Release) -> tuple[str, str]:
    if not release.noise_variance:
        return "none", ""
    gamma = release.certificate.parameters.get("gamma")
    ratio = "" if gamma is None else f"; γ = {gamma:.6g}"
    return (
        f"Gaussian, variance σ² = {release.noise_variance:.6g} per entry of the sketch{ratio}",
        f"standard deviation of an entry of the second moment: σ²/√k = {release.entry_noise:.6g}, in encoded units",
    )


def _bounds(release: Release) -> dict[str, Any]:
    if release.schema is None:
        rows = [[name, _plain_value(value)] for name, value in release.certificate.bounds.items()]
        return {"caption": "As declared to the estimator", "head": ["Bound", "Value"], "rows": rows}
    schema = release.schema
    rows = [_bound(name, column) for name, column in schema.columns.items()]
    constant = f"a constant column of {schema.intercept:g}" if schema.intercept else "no constant column"
    return {
        "caption": f"{len(rows)} columns and {constant}; {schema.n_columns} encoded columns",
        "head": ["Column", "Kind", "Bounds or levels", "Weight", "Missing values", "Unknown levels"],
        "rows": rows,
    }


def _bound(name: str, column: Numeric | Boolean | Categorical) -> list[str]:
    weight = f"{column.weight:g}"
    if isinstance(column, Numeric):
        return [name, "numeric", f"{_number(column.lower)} to {_number(column.upper)}", weight, column.missing, ""]
    if isinstance(column, Boolean):
        return [name, "boolean", "false or true", weight, column.missing, ""]
    levels = [str(level) for level in column.levels]
    more = f" and {len(levels) - _LEVELS_SHOWN} more" if len(levels) > _LEVELS_SHOWN else ""
    shown = ", ".join(levels[:_LEVELS_SHOWN]) + more
    return [name, "categorical", shown, weight, column.missing, column.unknown]


# ---------------------------------------------------------------------------------------------------------------
# The privacy curve
@dataclass(frozen=True)
class PrivacyCurve:
    """ε of one release at many δ, never below the exact value.

    Attributes
    ----------
    delta, epsilon : arrays
        δ from 10⁻¹² to 10⁻¹, and ε at each.
    certified_delta : float
        δ at the ε that was asked for.
    """

    delta: Floats
    epsilon: Floats
    certified_delta: float


def privacy_curve(
    deltas: ArrayLike, *, epsilon: float, sketch_size: int, gamma: float, relation: Relation = "zero-out"
) -> PrivacyCurve:
    r"""ε at many δ from exact points, interpolated on the safe side.

    δ is a supremum of P(S) - e^ε Q(S), and so convex in e^ε, and e^ε is convex in δ: the chord between two exact points
    of (δ, e^ε) lies above the curve.

    Parameters
    ----------
    deltas : array
        In [10⁻¹², 1].
    epsilon : float
        Of the certificate: one of the exact points.
    sketch_size, gamma, relation
        As in :func:`gaussmix.accounting.delta`.

    Examples
    --------
    >>> curve = privacy_curve([1e-8, 1e-6], epsilon=1.0, sketch_size=250, gamma=52.84)
    >>> curve.epsilon.round(3).tolist()
    [1.254, 1.0]
    """
    asked = check.numbers(deltas=deltas)
    largest = accounting.epsilon(_DELTA_MIN, sketch_size=sketch_size, gamma=gamma, relation=relation)
    if not math.isfinite(largest):
        return PrivacyCurve(asked, np.full(asked.shape, np.inf), 1.0)
    knots = np.unique([*np.linspace(0.0, largest, _KNOTS[relation]), epsilon])
    exact = accounting.delta(knots, sketch_size=sketch_size, gamma=gamma, relation=relation)
    certified = float(exact[np.searchsorted(knots, epsilon)])
    return PrivacyCurve(asked, _chords(asked, exact, knots), certified)


def _chords(deltas: Floats, exact: Floats, knots: Floats) -> Floats:
    """Linear interpolation of e^ε in δ, by logarithms; ``exact`` falls as ``knots`` rise from 0."""
    exact = np.minimum.accumulate(exact)  # the last digits may be out of order
    found = np.empty(deltas.shape)
    for i, target in enumerate(deltas):
        j = int(np.argmax(exact <= target)) if exact[-1] <= target else len(knots) - 1
        if j == 0 or exact[j - 1] == exact[j]:
            found[i] = knots[j]
            continue
        w = (target - exact[j]) / (exact[j - 1] - exact[j])  # weight of the lower ε
        with np.errstate(divide="ignore"):
            found[i] = np.logaddexp(np.log(w) + knots[j - 1], np.log1p(-w) + knots[j])
    return found


def _curve_of(certificate: Certificate) -> PrivacyCurve | None:
    """The curve of Gaussian mixing with noise alone; None for every other mechanism."""
    parameters = certificate.parameters
    if (
        not math.isfinite(certificate.epsilon)
        or parameters.get("scale") != "none"
        or parameters.get("eta") is not None
        or certificate.mechanism not in _MIXING
    ):
        return None
    grid = [step * 10.0**power for power in range(-12, -1) for step in _STEPS] + [_DELTA_MAX]
    if (
        _DELTA_MIN <= certificate.delta <= _DELTA_MAX
        and not np.isclose(grid, certificate.delta, rtol=1e-9, atol=0).any()
    ):
        grid.append(certificate.delta)
    return privacy_curve(
        [float(f"{delta:.12g}") for delta in sorted(grid)],
        epsilon=certificate.epsilon,
        sketch_size=parameters["sketch_size"],
        gamma=parameters["gamma"],
        relation=cast(Relation, certificate.relation),
    )


def _why_no_curve(certificate: Certificate) -> str:
    if not math.isfinite(certificate.epsilon):
        return "There is no curve: ε is infinite at every δ below 1. This release is not private."
    return "The curve of this mechanism is not one formula: the certified pair above is what is guaranteed."


def _picture(curve: PrivacyCurve, certificate: Certificate) -> dict[str, Any]:
    """Coordinates of the curve's figure and the slider's positions."""
    width, height, left, right, top, bottom = 480, 300, 52, 466, 22, 250
    reach = float(np.max(curve.epsilon[np.isfinite(curve.epsilon)], initial=0.0)) or 1.0
    step = _nice_step(reach, 5)
    highest = step * math.ceil(reach / step - 1e-9)

    def x(delta: float) -> float:
        return round(left + (math.log10(delta) + 12) / 11 * (right - left), 2)

    def y(epsilon: float) -> float:
        return round(bottom - min(epsilon / highest, 1.0) * (bottom - top), 2)

    pairs = list(zip(curve.delta.tolist(), curve.epsilon.tolist(), strict=True))
    positions = [{"words": f"δ = {d:.6g}: ε = {_up(e)}", "x": x(d), "y": y(e)} for d, e in pairs]
    start = min(range(len(pairs)), key=lambda i: abs(math.log(pairs[i][0] / max(certificate.delta, 1e-300))))
    inside = _DELTA_MIN <= certificate.delta <= _DELTA_MAX and certificate.epsilon <= highest
    together = _LEDGER in certificate.parameters.get("delta_split", {})
    pair = f"ε = {_number(certificate.epsilon)} at δ = {_number(certificate.delta)}"
    return {
        "width": width,
        "height": height,
        "left": left,
        "right": right,
        "top": top,
        "bottom": bottom,
        "x_ticks": [{"at": x(10.0**power), "label": f"−{-power}"} for power in range(-12, 0, 2)],
        "y_ticks": [{"at": y(step * i), "label": f"{step * i:g}"} for i in range(round(highest / step) + 1)],
        "points": " ".join(f"{point['x']},{point['y']}" for point in positions),
        "certified": {"x": x(certificate.delta), "y": y(certificate.epsilon), "title": pair} if inside else None,
        "positions": positions,
        "last": len(positions) - 1,
        "start": start,
        "start_words": positions[start]["words"],
        "title": f"ε falls as δ grows, from {_up(pairs[0][1])} at δ = 1e-12 to {_up(pairs[-1][1])} at δ = 0.1",
        "words": "One release is (ε, δ)-differentially private for every pair on this curve at once; "
        "the certificate names one of them."
        + (" The curve is of this release alone; the certified pair is of the whole ledger." * together),
    }


def _nice_step(reach: float, most: int) -> float:
    power = 10.0 ** math.floor(math.log10(reach / most))
    return next(multiple * power for multiple in (1, 2, 5, 10) if reach / (multiple * power) <= most + 1e-9)


# ---------------------------------------------------------------------------------------------------------------
# Coefficients, noise and signal
def _targets(release: Release, targets: Sequence[str] | None) -> Iterable[str]:
    if targets is not None:
        return targets
    schema = release.schema
    if schema is None or (len(schema.columns) == 1 and not schema.intercept):
        return []
    return [name for name, column in schema.columns.items() if not isinstance(column, Categorical)]


def _model(summary: Summary, release: Release, alpha: float) -> dict[str, Any]:
    schema = release.schema
    assert schema is not None  # regress has checked
    encoded = {column.name: column for column in schema.encoded}
    columns = [encoded[name] for name in summary.names]
    intervals = summary.conf_int(alpha)
    rows = [
        _coefficient(schema, column, float(summary.params[i]), intervals[i].tolist(), float(summary.pvalues[i]))
        for i, column in enumerate(columns)
    ]
    missing = sum(row["low"] is None for row in rows)
    words = [f"{len(rows) - missing} of {len(rows)} coefficients are identified at this budget."]
    if math.isfinite(summary.r_squared) and not missing:
        words.append(f"R² is about {min(max(summary.r_squared, 0.0), 1.0):.3f}.")
    if math.isfinite(summary.strength):
        side = "above" if summary.strength >= 0 else "below"
        words.append(f"The weakest direction is {abs(summary.strength):.1f} standard deviations {side} the noise.")
    return {"target": summary.response_name, "rows": rows, "words": " ".join(words)}


def _coefficient(
    schema: Schema, column: EncodedColumn, estimate: float, interval: list[float], p: float
) -> dict[str, Any]:
    meaning, span = _meaning(schema, column)
    row: dict[str, Any] = {"name": column.name, "meaning": meaning, "span": span, "p_text": _p(p)}
    if not all(math.isfinite(value) for value in (estimate, *interval)):
        blank = {"estimate": None, "low": None, "high": None}
        return row | blank | {"estimate_text": "", "interval_text": NOT_IDENTIFIED, "range_text": ""}
    low, high = interval
    return row | {
        "estimate": estimate,
        "low": low,
        "high": high,
        "estimate_text": f"{estimate:.4g}",
        "interval_text": f"{low:.4g} to {high:.4g}",
        "range_text": _across(span, estimate, low, high),
    }


def _across(span: float | None, estimate: float, low: float, high: float) -> str:
    if span is None or span == 1:
        return "" if span is None else "the same"
    return f"{estimate * span:.4g} ({low * span:.4g} to {high * span:.4g})"


def _meaning(schema: Schema, column: EncodedColumn) -> tuple[str, float | None]:
    """What a coefficient is for, and the declared range of its column; no range for the intercept."""
    if column.source is None:
        return "where all else is 0, or at its first level", None
    declared = schema.columns[column.source]
    if isinstance(declared, Numeric):
        span = declared.upper - declared.lower
        return f"per unit, {_number(declared.lower)} to {_number(declared.upper)}", span
    if isinstance(declared, Boolean):
        return "true against false", 1.0
    first = schema.encoded[schema.groups[column.source][0]].name
    return f"against {first}" if schema.intercept else "of this level", 1.0


def _p(p: float) -> str:
    if not math.isfinite(p):
        return ""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def _signals(release: Release) -> list[dict[str, Any]]:
    if release.schema is None:
        return []
    noise = release.entry_noise
    diagonal = np.diagonal(release.second_moment()).tolist()
    return [
        {
            "name": name,
            "signal": value,
            "signal_text": f"{value:.4g}",
            "noise_text": f"{noise:.4g}",
            "ratio_text": f"{value / noise:.3g}" if noise > 0 else "no noise",
        }
        for name, value in zip(release.schema.names, diagonal, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------------
# Numbers as text
def _up(value: float) -> str:
    """Three digits, rounded up."""
    if not math.isfinite(value):
        return "∞"
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal_from_float(value)):.3g}"


def _number(value: float) -> str:
    """A declared number with all of its digits."""
    if not math.isfinite(value):
        return "∞ (infinite)"
    return repr(value).removesuffix(".0")


def _one_in(probability: float) -> str:
    if not 1e-15 <= probability <= 0.1:
        return _number(probability)
    return f"one in {math.floor(1 / probability + 1e-6):,}"


def _plain_value(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_plain_value(part)}" for key, part in value.items())
    if value is None:
        return "none"
    return _number(value) if isinstance(value, float) else str(value)
