"""Coordinates, ticks and slider positions of the figure of the privacy curve."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gaussmix.accounting.curve import DELTA_MAX, DELTA_MIN, PrivacyCurve
from gaussmix.models.certificate import Certificate
from gaussmix.reporting.numbers import number, up

__all__ = ["picture", "why_no_curve"]


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
