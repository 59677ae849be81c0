"""The numbers of a release as named square blocks and plain parameters, and back: what its file is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from gaussmix._types import Floats
from gaussmix.data.transforms import Transform
from gaussmix.models.certificate import Certificate
from gaussmix.models.passes import Metric, PassRequest
from gaussmix.models.steps import StepOutput, StepRequest
from gaussmix.models.transcript import PassOutput, Transcript

__all__ = ["DERIVED", "Blocks", "derived_blocks", "drawn_blocks", "parameters_of", "statistic_of"]

Blocks = dict[str, Floats]
"""Square matrices by name, in the order of the file."""

DERIVED = ("G", "N")
"""Blocks that are computed from the others, outside of the file's checksum."""

_SAME = 1e-3  # of the noise: another machine's solvers differ in the last digits


def derived_blocks(statistic: Transcript) -> Blocks:
    """Return what is computed from the passes and stored for other tools: its last digits depend on the processor."""
    pooled = statistic.pooled
    return dict(zip(DERIVED, (pooled.matrix, pooled.shape), strict=True))


def drawn_blocks(statistic: Transcript) -> Blocks:
    """Return the matrices that were drawn, and what was asked of the rows: what a release is."""
    blocks = {}
    for number, output in enumerate(statistic.passes, 1):
        if output.request is not None:
            blocks[f"T{number}"] = output.request.metric.transform.integers
        blocks[f"M{number}"] = output.matrix
    return blocks | {f"S{number}": step.request.transform.integers for number, step in enumerate(statistic.steps, 1)}


def parameters_of(statistic: Transcript) -> dict[str, Any]:
    """Everything else, in plain values for JSON."""
    return {
        "passes": [_plain_pass(output) for output in statistic.passes],
        "steps": [_plain_step(step) for step in statistic.steps],
    }


def _plain_pass(output: PassOutput) -> dict[str, Any]:
    plain: dict[str, Any] = {"mu": output.mu, "rate": output.rate}
    request = output.request
    if request is not None:
        metric = request.metric
        plain |= {
            "counted_rate": output.counted_rate,
            "scales": metric.transform.scales.tolist(),
            **{name: getattr(metric, name) for name in _METRIC},
            **{name: getattr(request, name) for name in _REQUEST},
        }
    return plain


def _plain_step(step: StepOutput) -> dict[str, Any]:
    return {
        "target": step.request.target,
        "scales": step.request.transform.scales.tolist(),
        "clip": step.request.clip,
        "gradient": step.gradient.tolist(),
        **{name: getattr(step, name) for name in _STEP},
    }


_STEP = ("weight", "mu", "weight_mu")
_METRIC = ("power", "mean", "cost")
_REQUEST = ("clip", "rows", "kept_weight", "lost")


def statistic_of(stored: dict[str, Any], blocks: Blocks, certificate: Certificate) -> Transcript:
    """The numbers of a release from what its file holds, checked against each other; ValueError if they do not fit."""
    outputs = [_read_pass(number, plain, blocks) for number, plain in enumerate(stored["passes"], 1)]
    steps = [_read_step(number, plain, blocks) for number, plain in enumerate(stored["steps"], 1)]
    transcript = Transcript(tuple(outputs), certificate.schema, tuple(steps), certificate.unit)
    transcript.check()
    _check_derived(transcript, blocks)
    _check_keys(stored, transcript)
    return transcript


def _read_pass(number: int, plain: dict[str, Any], blocks: Blocks) -> PassOutput:
    mu, rate = (_number(plain[name]) for name in ("mu", "rate"))
    if number == 1:
        return PassOutput(blocks["M1"], mu, None, rate)
    transform = Transform(blocks[f"T{number}"], _numbers(plain["scales"]))
    metric = Metric(transform=transform, **{name: _number(plain[name]) for name in _METRIC})
    request = PassRequest(metric=metric, mu=mu * rate, **{name: _number(plain[name]) for name in _REQUEST})
    return PassOutput(blocks[f"M{number}"], mu, request, rate, _number(plain["counted_rate"]))


def _read_step(number: int, plain: dict[str, Any], blocks: Blocks) -> StepOutput:
    transform = Transform(blocks[f"S{number}"], _numbers(plain["scales"]))
    if not isinstance(plain["target"], str):
        raise TypeError("a target of the file is no name")
    request = StepRequest(plain["target"], transform, _number(plain["clip"]))
    return StepOutput(request, _numbers(plain["gradient"]), **{name: _number(plain[name]) for name in _STEP})


def _numbers(values: Any) -> Floats:
    return np.array([_number(value) for value in values])


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError("a number of the file is no number")
    return float(value)


def _check_keys(stored: dict[str, Any], statistic: Transcript) -> None:
    """Refuse keys that are not written for these numbers, in the file and in each of its passes and steps."""
    written = {"format": 0, "certificate": 0, **parameters_of(statistic)}
    if set(stored) != set(written):
        raise ValueError("its keys are not those of a release")
    for name in ("passes", "steps"):
        if [set(plain) for plain in stored[name]] != [set(plain) for plain in written[name]]:
            raise ValueError(f"the keys of its {name} are not those of a release")


def _check_derived(transcript: Transcript, blocks: Blocks) -> None:
    """Refuse a file whose G and N are not what its passes give, but for last digits."""
    derived = derived_blocks(transcript)
    if list(blocks) != [*derived, *drawn_blocks(transcript)]:
        raise ValueError("its blocks are not those of its passes")
    scale = np.sqrt(np.diagonal(derived["N"]))
    for name, found in derived.items():
        if not (np.abs(blocks[name] - found) <= _SAME * np.outer(scale, scale)).all():
            raise ValueError(f"{name} is not what its passes give")
