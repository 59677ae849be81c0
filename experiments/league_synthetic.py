"""Draw synthetic rows by MST or AIM of smartnoise-synth, in an environment that has it (:mod:`experiments.league`).

python experiments/league_synthetic.py given.csv found.csv mst 1.0 1e-6 0
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pandas as pd
from mbi.markov_random_field import MarkovRandomField  # type: ignore[import-not-found]
from snsynth.aim import AIMSynthesizer  # type: ignore[import-not-found]
from snsynth.mst import MSTSynthesizer  # type: ignore[import-not-found]

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    given, found, kind, epsilon, delta, seed = sys.argv[1:]
    # Tables and rows are chosen by numpy's global generator. The noise is OpenDP's, which has no seed.
    np.random.seed(int(seed))  # noqa: NPY002
    # The default rounds expected counts, which makes columns dependent that are independent in the model.
    rounded = MarkovRandomField.synthetic_data
    MarkovRandomField.synthetic_data = lambda model, rows=None, method="sample": rounded(model, rows, "sample")
    frame = pd.read_csv(given)
    synthesizer = {"mst": MSTSynthesizer, "aim": AIMSynthesizer}[kind](epsilon=float(epsilon), delta=float(delta))
    synthesizer.fit(frame, categorical_columns=list(frame.columns))
    synthesizer.sample(len(frame)).to_csv(found, index=False)
