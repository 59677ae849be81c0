"""The privacy label of a release: privacy unit, budget and conditions as a small SVG picture.

**Private**: a function of the certificate. The SVG has a white background in light and dark mode and no external
resources; its description contains the text for screen readers.
"""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass

from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.models.release import Release
from gaussmix.report.statement import banner, conditions, found_at_most, number, up

__all__ = ["PrivacyLabel", "as_svg", "label_of"]

_WIDTH, _EDGE, _LINE = 420, 20, 18
_LETTERS = 56  # characters per line of small text
_INK, _MUTED, _RULE, _BAD = "#1b1d21", "#51565e", "#c9ced6", "#8f0f1f"


@dataclass(frozen=True)
class PrivacyLabel:
    """Content of a label. Without a guarantee (``void``) it has no large numbers."""

    heading: str
    void: bool
    numbers: tuple[tuple[str, str], ...]  # ε and δ
    lines: tuple[tuple[str, str], ...]  # names and values
    conditions: tuple[str, ...]  # of the guarantee, or reasons why it is void

    def __str__(self) -> str:
        pairs = [f"{name} {value}" for name, value in self.numbers] + [f"{n}: {value}" for n, value in self.lines]
        return ". ".join([self.heading, *pairs, *self.conditions])


def label_of(release: Release) -> PrivacyLabel:
    """Return the label of a release, without ε and δ if there is no guarantee."""
    certificate, invalid = release.certificate, banner(release)
    lines = [
        ("Privacy unit", certificate.unit_words),
        ("Neighbours", f"{certificate.neighbours}: {certificate.relation_words}"),
    ]
    if invalid is None:
        together = certificate.covers_ledger
        lines.append(("Covers", "all releases of one ledger" if together else "this release"))
        if isinstance(account := certificate.guarantee, LatticeAccount):
            alone = ", this release alone" if together else ""
            lines.append(("μ (Gaussian DP)", f"{up(account.mu)}{alone}"))
        lines.append(("Attack power", f"at most {found_at_most(certificate)} at 5 % false positives"))
    lines += [
        ("Mechanism", certificate.mechanism),
        ("Created", certificate.time[:10] or "date not recorded"),
        ("Release", certificate.release),
    ]
    found = tuple(condition.text[:1].upper() + condition.text[1:] for condition in conditions(certificate))
    if invalid is not None:
        return PrivacyLabel(invalid["heading"], True, (), tuple(lines), found or (invalid["text"],))
    numbers = (("ε", number(certificate.epsilon)), ("δ", number(certificate.delta)))
    sound = "No condition voids the guarantee. It assumes that bounds were chosen without looking at the rows."
    return PrivacyLabel("Privacy label", False, numbers, tuple(lines), found or (sound,))


def as_svg(release: Release) -> str:
    """Return the label as one SVG element, which is also a valid SVG file."""
    label, y = label_of(release), 58
    ink = _BAD if label.void else _INK
    drawn = [_text(_EDGE, 44, label.heading, size=24, weight=700, fill=ink), _rule(y, 6)]
    for name, value in label.numbers:
        y += 42
        drawn.append(_text(_EDGE, y, name, size=30, weight=700))
        drawn.append(_text(_WIDTH - _EDGE, y, value, size=30, weight=700, end=True))
    if label.numbers:
        y += 14
        drawn.append(_rule(y, 3))
    for name, value in label.lines:
        drawn.append(_text(_EDGE, y + 22, name, fill=_MUTED))
        for line in textwrap.wrap(value, _LETTERS - 4 - len(name)):
            y += _LINE
            drawn.append(_text(_WIDTH - _EDGE, y + 4, line, weight=600, end=True))
        y += 12
        drawn.append(_rule(y, 1))
    drawn.append(_rule(y, 3))
    y += 24
    drawn.append(_text(_EDGE, y, "Conditions", weight=700))
    for condition in label.conditions:
        for line in textwrap.wrap(condition, _LETTERS):
            y += _LINE
            drawn.append(_text(_EDGE, y, line, fill=ink))
    height = y + 26
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="label" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'height="{height}" role="img" aria-labelledby="label-title" aria-describedby="label-text" '
            'font-family="system-ui, Segoe UI, Roboto, Helvetica, DejaVu Sans, sans-serif">',
            f'<title id="label-title">{_safe(label.heading)}</title><desc id="label-text">{_safe(str(label))}</desc>',
            f'<rect x="1" y="1" width="{_WIDTH - 2}" height="{height - 2}" rx="10" fill="#ffffff" stroke="{_INK}" '
            'stroke-width="2"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _text(x: int, y: int, text: str, *, size: int = 13, weight: int = 400, fill: str = _INK, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{fill}"{anchor}>{_safe(text)}</text>'


def _rule(y: int, width: int) -> str:
    fill = _RULE if width == 1 else _INK
    return f'<rect x="{_EDGE}" y="{y}" width="{_WIDTH - 2 * _EDGE}" height="{width}" fill="{fill}"/>'


def _safe(text: str) -> str:
    """Escape markup and replace characters that are not allowed in XML."""
    return html.escape("".join(letter if letter.isprintable() else " " for letter in text))
