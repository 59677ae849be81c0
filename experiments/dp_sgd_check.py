"""Checks that DP-SGD adds noise once for each batch, at the stated scale (needs torch and opacus).

With noise a thousand times the clipping norm and plain steps of length 1, T steps move every parameter by a normal
variable of standard deviation √T · noise · clip / batch. Prints the measured over the expected one: parts of a batch
that were noised apart would show as a ratio of 2, and with half a million parameters 1 % would show too.
"""

import math
import warnings

import torch

from experiments import dp_sgd

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
rows, batch, epochs, noise = 160, 40, 2, 1000.0
dp_sgd.PART = 10
images = torch.rand(rows, 3, 32, 32) - 0.5
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(images, torch.randint(0, 2, (rows,))), batch_size=batch
)
network = dp_sgd.Network()
start = torch.nn.utils.parameters_to_vector(network.parameters()).detach().clone()
dp_sgd.train_privately(network, torch.optim.SGD(network.parameters(), lr=1.0), loader, noise, epochs)
moved = torch.nn.utils.parameters_to_vector(network.parameters()).detach() - start
expected = math.sqrt(epochs * len(loader)) * noise * dp_sgd.CLIP / batch
print(float(moved.std()) / expected)
