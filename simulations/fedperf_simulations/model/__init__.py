"""GGFN as a torch module, and its training: what makes the pretrained model that ships.

The product computes the same numbers without it (`fedperf_shared.model.inference`).
"""
