"""Floor 1: devices. The protocol that every device keeps, CUDA through cuda-python, and arrays.

Importing this package imports neither cuda-python nor any array library: a machine without a GPU, a driver
or a toolkit imports it as well.
"""
