"""Shapes and types of the whole package are checked while the tests run, and only then."""

import os

# The tensors of the tests are so small that a second thread costs more than it brings, and on a busy machine threads
# that wait for each other cost far more. Set before torch is loaded, and inherited by every process that a test starts.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import torch
from hypothesis import Phase, settings
from jaxtyping import install_import_hook

install_import_hook("latentmt", "beartype.beartype")
torch.set_num_threads(1)
torch.set_num_interop_threads(1)
settings.register_profile("long", max_examples=2000)
settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])  # what fails need not be made simple
settings.register_profile("default", derandomize=True)  # a change is judged by what it changes
