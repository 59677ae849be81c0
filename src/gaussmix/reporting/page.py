"""One page about a release, for a reviewer and for its readers: post-processing, which costs no privacy.

The page holds the privacy statement, the privacy curve, coefficients with intervals for every target, and noise
against signal. It is one HTML file that loads nothing. Everything in it comes from the release and its certificate: the
same release gives the same page. Needs the extra ``gaussmix[plots]``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from gaussmix import _validation as check
from gaussmix.accounting.curve import curve_of
from gaussmix.errors import MissingPackageError
from gaussmix.models.release import Release
from gaussmix.models.rendering import NOT_IDENTIFIED
from gaussmix.reporting.coefficients import SIGNAL_WORDS, model_of, signals_of, targets_of
from gaussmix.reporting.figure import picture, why_no_curve
from gaussmix.reporting.statement import (
    NOTHING,
    assumed,
    banner,
    bounds_of,
    conditions,
    fields_of,
    in_plain_words,
    parameters_of,
    title,
)

if TYPE_CHECKING:
    import jinja2

__all__ = ["render"]


def render(
    release: Release, *, alpha: float = 0.05, targets: Sequence[str] | None = None, file_sha256: str = ""
) -> str:
    """The page as HTML.

    Parameters
    ----------
    release : Release
    alpha : float
        Intervals have level 1 - alpha.
    targets : list of str, optional
        Columns that may be chosen on the page; default: all numeric and boolean ones. Each costs a search per
        coefficient when the page is made.
    file_sha256 : str
        SHA-256 of the release's file, to be shown.
    """
    alpha = check.in_interval(0, 1, alpha=alpha)
    environment = _environment()
    certificate = release.certificate
    invalid = banner(release)
    curve = None if invalid else curve_of(certificate.account)
    drawn = None if curve is None else picture(curve, certificate)
    chosen = targets_of(release.schema) if targets is None else targets
    models = [model_of(release.regress(name).summary(), release.schema, alpha) for name in chosen]
    signals = signals_of(release)
    data = {
        "curve": [] if drawn is None else drawn.pop("positions"),
        "models": models,
        "signals": signals,
        "not_identified": NOT_IDENTIFIED,
    }
    style, script = _part("report.css"), _part("report.js")
    return environment.from_string(_part("report.html")).render(
        title=title(release),
        banner=invalid,
        plain=NOTHING if invalid else in_plain_words(certificate),
        conditions=conditions(certificate),
        fields=fields_of(release, curve, valid=not invalid, file_sha256=file_sha256),
        assumed=() if invalid else assumed(certificate),
        bounds=bounds_of(release.schema),
        parameters=parameters_of(certificate),
        curve=drawn,
        no_curve=why_no_curve(certificate, valid=not invalid),
        level=f"{100 * (1 - alpha):.6g} %",
        targets=[model["target"] for model in models],
        no_models="No column of this release can be explained by others.",
        signals=signals,
        signal_words=SIGNAL_WORDS
        if release.statistic.column_noise.max() > 0
        else "No noise was added to this release.",
        data=_embedded(data),
        style=_trusted(style),
        script=_trusted(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _environment() -> jinja2.Environment:
    try:
        import jinja2
    except ImportError as error:
        raise MissingPackageError("Reports need jinja2: pip install 'gaussmix[plots]'.") from error
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


def _part(name: str) -> str:
    return resources.files("gaussmix.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _trusted(text: str) -> Any:
    """Text of this package, which goes into the page as it is."""
    from markupsafe import Markup

    return Markup(text)


def _embedded(data: Any) -> Any:
    """JSON that cannot end the script element it stands in, nor open a comment."""
    text = json.dumps(data, allow_nan=False)  # ASCII: no line separators either
    return _trusted(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _hash(text: str) -> str:
    """The hash of an inline part, for the page's own content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
