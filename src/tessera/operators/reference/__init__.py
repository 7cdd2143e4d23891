"""Reference implementations in float64 of operators that NumPy and SciPy lack; expressions call them as `ref.NAME`.

The implementations follow the mathematical definitions of the operators and share no code with a backend.
"""

# ruff: noqa: F403  (the expressions of the catalogue name the functions)

from tessera.operators.reference.attention import *
from tessera.operators.reference.convolution import *
from tessera.operators.reference.data_movement import *
from tessera.operators.reference.elementwise import *
from tessera.operators.reference.linear_algebra import *
from tessera.operators.reference.loss import *
from tessera.operators.reference.normalisation import *
from tessera.operators.reference.optimiser import *
from tessera.operators.reference.order import *
from tessera.operators.reference.pooling import *
from tessera.operators.reference.recurrent import *
from tessera.operators.reference.sampling import *
from tessera.operators.reference.signals import *
