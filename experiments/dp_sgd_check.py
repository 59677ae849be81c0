"""Checks that DP-SGD adds noise once for each batch, at the stated scale (needs torch and opacus).

    python -m experiments.dp_sgd_check

With noise a thousand times the clipping norm and plain steps of length 1, T steps move every parameter by a normal
variable of standard deviation √T · noise · clip / batch. Prints the measured over the expected one: parts of a batch
that were noised apart would show as a ratio of 2, and with half a million parameters 1 % would show too.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch.nn.utils import parameters_to_vector

from experiments.dp_sgd import CLIP, Network, train_privately

ROWS, BATCH, PART, EPOCHS, NOISE = 160, 40, 10, 2, 1000.0


def measured_over_expected() -> float:
    """Standard deviation of the parameters' moves, over that of one noise a batch."""
    torch.manual_seed(0)
    images = torch.rand(ROWS, 3, 32, 32) - 0.5
    data = torch.utils.data.TensorDataset(images, torch.randint(0, 2, (ROWS,)))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    network = Network()
    start = parameters_to_vector(network.parameters()).detach().clone()
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    train_privately(network, optimizer, loader, noise=NOISE, epochs=EPOCHS, part=PART)
    moved = parameters_to_vector(network.parameters()).detach() - start
    return float(moved.std()) / (math.sqrt(EPOCHS * len(loader)) * NOISE * CLIP / BATCH)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(measured_over_expected())
