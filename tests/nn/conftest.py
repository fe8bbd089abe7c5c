"""Tensors this small are slower on two threads than on one, by far when the cores are shared."""

import torch

torch.set_num_threads(1)
