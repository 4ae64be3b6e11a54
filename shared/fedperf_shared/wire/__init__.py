"""Protocol buffers: generated code and the codec between them and domain objects.

Only this package imports generated message modules.
"""
