"""Shapes and types of the whole package are checked while the tests run, and only then."""

import torch
from jaxtyping import install_import_hook

install_import_hook("latentmt", "beartype.beartype")

# The tensors of the tests are so small that a second thread costs more than it brings.
torch.set_num_threads(1)
