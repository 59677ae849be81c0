"""Features for Figures 3 and 5: the paper's network, trained with DP-SGD on a tenth of the budget.

    GAUSSMIX_DATA=... python -m experiments.dp_sgd

Needs torch and opacus, in an environment of their own: ``make networks``. Every finished network is a file in the
cache, so that a stopped run goes on where it was, and the heads (``logistic.py``) need no network.

Noise is calibrated with dp-accounting: the search of opacus itself adds 15 times too much at ε = 0.01. Batches are
Poisson samples with rate 1/steps per epoch; ghost clipping in parts of 64 changes the time, not the law. Noise comes
from torch's seeded generator: for experiments only. Features are the 128 hidden units after their ReLU, as the paper's
text has them; its code takes them before.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two processes of one thread each beat one of two

import dp_accounting
import numpy as np
import torch
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from tqdm import tqdm

from experiments.data_files import CACHE
from experiments.images import IMAGES, Images
from experiments.network_features import EPSILONS, NETWORK_SHARE, feature_file, total_delta

EPOCHS, BATCH, PART, CLIP, LEARNING_RATE = 20, 500, 64, 4.0, 1e-3


def noise_multiplier(epsilon: float, delta: float, *, rate: float, steps: int) -> float:
    """Standard deviation over clipping norm for which the steps together are (ε, δ)-differentially private."""
    return float(
        dp_accounting.calibrate_dp_mechanism(
            lambda: PLDAccountant(value_discretization_interval=min(1e-4, epsilon * 1e-3)),
            lambda s: dp_event.SelfComposedDpEvent(
                dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(s)), steps
            ),
            epsilon,
            delta,
            bracket_interval=dp_accounting.ExplicitBracketInterval(0.3, 2000),
            tol=1e-3,
        )
    )


class Network(nn.Module):
    """Two convolutions (32 and 64 channels), 64·8·8 features, 128 hidden units, 2 logits."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 8 * 8, 128), nn.ReLU(),
        )  # fmt: skip
        self.logits = nn.Linear(128, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.logits(self.hidden(x))


def tensors(pixels: np.ndarray, labels: np.ndarray) -> torch.utils.data.TensorDataset:
    """Images of 3 by 32 by 32 with values in [-1/2, 1/2], labels 0 and 1."""
    x = torch.from_numpy(pixels.astype(np.float32) / 255 - 0.5)
    if x.shape[-1] != 32:
        x = nn.functional.interpolate(x, size=(32, 32), mode="bilinear")
    return torch.utils.data.TensorDataset(x.expand(-1, 3, -1, -1).contiguous(), torch.from_numpy((labels + 1) // 2))


def train_privately(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: torch.utils.data.DataLoader,
    *,
    noise: float,
    epochs: int,
    part: int = PART,
) -> None:
    """DP-SGD: Poisson batches of rate 1/len(loader), clipped gradients, noise once for each of them.

    Gradients are taken in parts of so many images, for memory's sake.
    """
    model, optimizer, criterion, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=optimizer,
        data_loader=loader,
        criterion=nn.CrossEntropyLoss(),
        noise_multiplier=noise,
        max_grad_norm=CLIP,
        grad_sample_mode="ghost",
    )
    model.train()
    for _ in range(epochs):
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=part, optimizer=optimizer) as parts:
            for x, y in parts:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
    network.eval()


def train(images: Images, epsilon: float, *, epochs: int = EPOCHS, seed: int = 0) -> dict[str, Any]:
    """Train on a tenth of (ε, δ); features of all images and what was spent."""
    torch.manual_seed(seed)
    start = time.perf_counter()
    data, test = tensors(images.train, images.train_labels), tensors(images.test, images.test_labels)
    loader = torch.utils.data.DataLoader(data, batch_size=min(BATCH, len(data)))
    delta, rate, steps = total_delta(len(data)), 1 / len(loader), epochs * len(loader)
    noise = noise_multiplier(NETWORK_SHARE * epsilon, NETWORK_SHARE * delta, rate=rate, steps=steps)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    train_privately(network, optimizer, loader, noise=noise, epochs=epochs)
    with torch.no_grad():
        features = [torch.cat([network.hidden(x) for x in part.tensors[0].split(500)]) for part in (data, test)]
        wrong = network.logits(features[1]).argmax(1) != test.tensors[1]
    return {
        "train": features[0].numpy(),
        "train_labels": images.train_labels,
        "test": features[1].numpy(),
        "test_labels": images.test_labels,
        "epsilon": epsilon,
        "delta": delta,
        "noise": noise,
        "rate": rate,
        "steps": steps,
        "error": float(wrong.float().mean()),
        "seconds": time.perf_counter() - start,
    }


def run(job: tuple[str, float, Path, int, int | None]) -> str:
    """Train and keep one network, unless it is there."""
    name, epsilon, folder, epochs, rows = job
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Secure RNG turned off|Full backward hook is firing")
    path = feature_file(name, epsilon, folder)
    if not path.exists():
        images = IMAGES[name]()
        if rows is not None:
            chosen = np.linspace(0, len(images.train) - 1, rows).astype(int)  # both classes, also where they are sorted
            images = images._replace(train=images.train[chosen], train_labels=images.train_labels[chosen])
        found = train(images, epsilon, epochs=epochs, seed=round(1000 * epsilon))
        if not math.isfinite(float(np.sum(found["train"]))):
            raise FloatingPointError(f"Training on {name} at ε = {epsilon:.3g} diverged.")
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part.npz")
        np.savez_compressed(unfinished, **found)
        unfinished.rename(path)
    return f"{name}, ε = {epsilon:.3g}"


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(IMAGES), choices=list(IMAGES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS.tolist())
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--rows", type=int, help="train on so many images only, for a quick try")
    parser.add_argument("--out", type=Path, default=CACHE)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.out == CACHE and (arguments.rows is not None or arguments.epochs != EPOCHS):
        parser.error("--rows and --epochs are for a quick try: give it another --out than the figures' cache.")
    jobs = [
        (name, epsilon, arguments.out, arguments.epochs, arguments.rows)
        for epsilon in sorted(arguments.epsilons, reverse=True)
        for name in arguments.sets
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        progress = tqdm(pool.imap_unordered(run, jobs), total=len(jobs), desc="networks")
        for done in progress:
            progress.set_postfix_str(done)


if __name__ == "__main__":
    main()
