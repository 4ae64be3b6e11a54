"""GGFN, the shared cost model: its shape, predictions, gradients, metrics and checkpoints.

Only `linearization` and `plan_gradients`, by which rounds train, import torch.
"""
