"""Reference implementations in float64 of operators that NumPy and SciPy lack; expressions call them as `ref.NAME`.

The implementations follow the mathematical definitions of the operators and share no code with a backend.
"""

# ruff: noqa: F401

from tessera.operators.reference.attention import attention, multi_head_attention
from tessera.operators.reference.convolution import convolution, time_convolution, transposed_convolution
from tessera.operators.reference.data_movement import (
    added,
    along,
    averaged,
    cartesian_prod,
    channel_shuffle,
    combinations,
    conj,
    diag_embed,
    fold,
    identity,
    nonzero_static,
    pixel_shuffle,
    pixel_unshuffle,
    quantised,
    raised,
    replaced,
    triangle,
    unfold,
    view_as_complex,
    view_as_real,
)
from tessera.operators.reference.elementwise import (
    addcdiv,
    addcmul,
    celu,
    chebyshev_v,
    chebyshev_w,
    elu,
    gelu,
    gelu_tanh,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    leaky_relu,
    lerp,
    mish,
    prelu,
    selu,
    silu,
    softplus,
    softshrink,
    softsign,
)
from tessera.operators.reference.linear_algebra import (
    geqrf,
    householder_product,
    ldl_factor,
    ldl_solve,
    lu_factor,
    lu_solve,
    lu_unpack,
)
from tessera.operators.reference.loss import (
    cosine_embedding_loss,
    cross_entropy,
    ctc_loss,
    huber_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    nll_loss,
    triplet_margin_loss,
)
from tessera.operators.reference.normalisation import (
    batch_norm,
    compute_mean_and_rstd,
    cosine_similarity,
    group_norm,
    layer_norm,
    local_response_norm,
    normalize,
    renorm,
    rms_norm,
    weight_norm,
)
from tessera.operators.reference.optimiser import (
    adadelta,
    adafactor,
    adagrad,
    adam,
    adamax,
    amsgrad,
    asgd,
    nadam,
    radam,
    rmsprop,
    rmsprop_momentum,
    rprop,
    sgd,
)
from tessera.operators.reference.order import cummax, cummin, kthvalue, median, mode, searchsorted_rows, sort, topk
from tessera.operators.reference.pooling import (
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    fractional_max_pool,
    lp_pool,
    max_pool,
    max_pool_with_indices,
    max_unpool,
)
from tessera.operators.reference.recurrent import gru_cell, lstm_cell, recurrent, rnn_relu_cell, rnn_tanh_cell
from tessera.operators.reference.sampling import (
    alpha_dropout,
    binomial,
    dropout,
    multinomial,
    multinomial_once,
    truncated_normal,
)
from tessera.operators.reference.signals import affine_grid, grid_sample, interpolate, istft, stft
