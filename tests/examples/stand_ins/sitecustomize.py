"""Seeds for a program that sets none itself; Python imports this module before it, where this folder is on the path."""

import random

import numpy

random.seed(0)
numpy.random.seed(0)
