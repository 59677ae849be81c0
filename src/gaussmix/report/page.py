"""The HTML report of a release. It is post-processing and costs no privacy.

The page shows the privacy label and statement, tables, the privacy curve and signal-to-noise ratios. It embeds the
release, from which models and predictions are computed in the browser (``templates/scripts``) with the same results as
this library. It is one HTML file without external resources, and a deterministic function of the release and the
arguments. Requires the extra ``gaussmix[plots]``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from gaussmix import _validation as check
from gaussmix._text import plain
from gaussmix.accounting.curve import DELTA_MAX, DELTA_MIN, PrivacyCurve, curve_of
from gaussmix.errors import ArgumentError, MissingPackageError
from gaussmix.models.release import Release
from gaussmix.models.rendering import NOT_IDENTIFIED, estimated_on
from gaussmix.releases.certificate import Certificate
from gaussmix.report.label import as_svg
from gaussmix.report.page_data import (
    embedded_release,
    first_predictors,
    first_response,
    possible_responses,
    static_tables,
)
from gaussmix.report.statement import (
    NOTHING,
    assumed,
    banner,
    bounds_of,
    conditions,
    fields_of,
    in_plain_words,
    number,
    parameters_of,
    subject,
    up,
)

if TYPE_CHECKING:
    import jinja2

__all__ = ["SIGNAL_WORDS", "picture", "render", "signals_of", "why_no_curve"]


def why_no_curve(certificate: Certificate, *, valid: bool) -> str:
    """Return the text shown if there is no curve."""
    if not math.isfinite(certificate.epsilon):
        return "No curve is shown: ε is infinite at every δ below 1. This release is not private."
    if not valid:
        return "No curve is shown: this release has no privacy guarantee."
    return "No curve is available for this mechanism. The guarantee is the certified pair above."


def picture(curve: PrivacyCurve, certificate: Certificate) -> dict[str, Any]:
    """Return the coordinates of the figure and the positions of its slider."""
    width, height, left, right, top, bottom = 480, 300, 52, 466, 22, 250
    reach = float(np.max(curve.epsilon[np.isfinite(curve.epsilon)], initial=0.0)) or 1.0
    step = _nice_step(reach, 5)
    highest = step * math.ceil(reach / step - 1e-9)

    def x(delta: float) -> float:
        return round(left + (math.log10(delta) + 12) / 11 * (right - left), 2)

    def y(epsilon: float) -> float:
        return round(bottom - min(epsilon / highest, 1.0) * (bottom - top), 2)

    pairs = list(zip(curve.delta.tolist(), curve.epsilon.tolist(), strict=True))
    positions = [{"words": f"δ = {d:.6g}: ε = {up(e)}", "x": x(d), "y": y(e)} for d, e in pairs]
    start = min(range(len(pairs)), key=lambda i: abs(math.log(pairs[i][0] / max(certificate.delta, 1e-300))))
    inside = DELTA_MIN <= certificate.delta <= DELTA_MAX and certificate.epsilon <= highest
    together = certificate.covers_ledger
    pair = f"ε = {number(certificate.epsilon)} at δ = {number(certificate.delta)}"
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
        "title": f"ε falls as δ grows, from {up(pairs[0][1])} at δ = 1e-12 to {up(pairs[-1][1])} at δ = 0.1",
        "words": "The release is (ε, δ)-differentially private for every pair on this curve; "
        "the certificate states one of them."
        + (" The curve is for this release alone; the certified pair covers the whole ledger." * together),
    }


def _nice_step(reach: float, most: int) -> float:
    power = 10.0 ** math.floor(math.log10(reach / most))
    return next(multiple * power for multiple in (1, 2, 5, 10) if reach / (multiple * power) <= most + 1e-9)


SIGNAL_WORDS = (
    "Signal: sum of squares of an encoded column, estimated from the release; encoding maps the declared bounds to "
    "plus and minus the column's weight. Noise: standard deviation of the privacy noise in the same sum of an empty "
    "table. With a ratio near 1 a column carries little information."
)


def signals_of(release: Release) -> list[dict[str, Any]]:
    """Return signal, noise and their ratio for every encoded column as text, and the length of its bar in percent.

    Bars are logarithmic: 0 for a signal that does not exceed the noise, 100 for the largest ratio.
    """
    signals, noises = np.diagonal(release.second_moment).tolist(), release.statistic.column_noise.tolist()
    ratios = [signal / noise for signal, noise in zip(signals, noises, strict=True) if noise > 0]
    longest = math.log10(max([10.0, *ratios]))
    return [
        {
            "name": name,
            "signal": f"{value:.4g}",
            "noise": f"{noise:.4g}",
            "ratio": f"{value / noise:.3g}" if noise > 0 else "no noise",
            "bar": round(100 * math.log10(value / noise) / longest, 1) if value > noise > 0 else 0.0,
        }
        for name, value, noise in zip(release.schema.names, signals, noises, strict=True)
    ]


MOST_COLUMNS = 400
"""Maximum number of encoded columns of a release that a page can embed."""

TOO_WIDE = (
    f"This release has more than {MOST_COLUMNS} encoded columns, too many for a page. "
    "Use gaussmix ols, describe, corr and crosstab."
)

NO_NOISE = "This release has no noise, so it is not embedded in the page. Use gaussmix ols to fit models."

_SCRIPTS = (
    "algebra",
    "normal",
    "design",
    "inference",
    "distribution",
    "models",
    "elements",
    "choices",
    "results",
    "page",
)
"""Parts of the script of the page, in order of dependence."""


def render(
    release: Release,
    *,
    alpha: float = 0.05,
    response: str | None = None,
    predictors: Sequence[str] | None = None,
    title: str = "",
    description: str = "",
    n_rows: int | None = None,
    file_sha256: str = "",
) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    release : Release
    alpha : float
        Intervals have level 1 - alpha by default; the reader can choose another level.
    response : str, optional
        Response of the model shown first. By default, no model is shown until the reader chooses a
        response, unless only one column can be one.
    predictors : sequence of str, optional
        Predictors of the model shown first. Default: all other columns.
    title, description : str
        Title and description chosen by the publisher.
    n_rows : int, optional
        Number of rows, if it is public. It is shown and used for population intervals.
    file_sha256 : str
        SHA-256 of the release file, shown in the statement.
    """
    alpha = check.in_interval(0, 1, alpha=alpha)
    n_rows = None if n_rows is None else check.positive_integer(n_rows=n_rows)
    environment = _environment()
    certificate = release.certificate
    invalid = banner(release)
    curve = None if invalid else curve_of(certificate.guarantee)
    drawn = None if curve is None else picture(curve, certificate)
    possible, opening = possible_responses(release.schema), first_response(release.schema, response)
    no_models, tables, no_tables = "", None, ""
    if release.schema.n_columns > MOST_COLUMNS:
        no_models = no_tables = TOO_WIDE
    else:
        try:
            tables = static_tables(release, opening or next(iter(possible), None), alpha=alpha)
        except ArgumentError as error:  # weights, no intercept, or no number of rows
            no_tables = str(error)
        if release.statistic.exact:
            no_models = NO_NOISE
        elif not possible:
            no_models = "No column of this release can be the response of a model."
    data = {
        "curve": [] if drawn is None else drawn.pop("positions"),
        "release": None if no_models else embedded_release(release, n_rows),
        "response": opening,
        "predictors": None if predictors is None else first_predictors(release.schema, opening, predictors),
        "alpha": alpha,
        "rows": n_rows,
        "not_identified": NOT_IDENTIFIED,
    }
    parts = "".join(_part(f"scripts/{name}.js") for name in _SCRIPTS)
    style, script = _part("report.css"), f'"use strict";\n(() => {{\n{parts}}})();\n'  # one function scope
    return environment.from_string(_part("report.html")).render(
        title=title or subject(release),
        about=subject(release) if title else "",
        description=description,
        rows=None if n_rows is None else f"{n_rows:,}",
        banner=invalid,
        label=_trusted(as_svg(release)),
        plain=NOTHING if invalid else in_plain_words(certificate),
        conditions=conditions(certificate),
        fields=fields_of(release, curve, valid=not invalid, file_sha256=file_sha256),
        assumed=() if invalid else assumed(certificate),
        bounds=bounds_of(release.certificate.schema),
        parameters=parameters_of(certificate),
        curve=drawn,
        no_curve=why_no_curve(certificate, valid=not invalid),
        model=not no_models,
        opening=_opening(response is not None, predictors is not None),
        no_models=no_models,
        tables=tables,
        no_tables=no_tables,
        clipped=bool(estimated_on(release.statistic.noisy)),
        signals=signals_of(release),
        signal_words=SIGNAL_WORDS if not release.statistic.exact else "No noise was added to this release.",
        data=_embedded(data),
        style=_trusted(style),
        script=_trusted(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _opening(response: bool, predictors: bool) -> str:
    """Return which model is shown first, and who chose it; empty if the publisher did not."""
    others = "the predictors chosen by the publisher" if predictors else "all other columns as predictors"
    return f"The model shown first has the response chosen by the publisher and {others}." if response else ""


def _environment() -> jinja2.Environment:
    try:
        import jinja2
    except ImportError as error:
        raise MissingPackageError('Reports require jinja2: pip install "gaussmix[plots]".') from error
    return jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, finalize=_without_controls
    )


def _without_controls(value: Any) -> Any:
    """Escape control characters in text and in nested values; leave trusted markup unchanged."""
    if isinstance(value, Mapping):
        return {_without_controls(key): _without_controls(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_controls(item) for item in value]
    return plain(value, lines=True) if type(value) is str else value


def _part(name: str) -> str:
    return resources.files("gaussmix.report").joinpath("templates", *name.split("/")).read_text(encoding="utf-8")


def _trusted(text: str) -> Any:
    """Mark text as safe markup: text of this package, or text that it has escaped."""
    from markupsafe import Markup

    return Markup(text)


def _embedded(data: Any) -> Any:
    """Return JSON that cannot close its script element or open a comment."""
    text = json.dumps(_without_controls(data), allow_nan=False)  # ASCII, hence no line separators
    return _trusted(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _hash(text: str) -> str:
    """Return the hash of an inline element for the content security policy of the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
