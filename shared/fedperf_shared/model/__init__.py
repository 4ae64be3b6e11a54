"""GGFN, the shared cost model: its shape, batches, loss, metrics, checkpoints and training.

`architecture`, `metrics` and `checkpoint` need no torch; the other modules import it.
"""
