"""Making arrays: filled, random, converted, and updated by an optimiser's step."""

from __future__ import annotations

_CASTS = (
    *("float64_to_float32", "float16_to_float32", "int64_to_float32", "int32_to_float32", "int8_to_float32"),
    *("uint8_to_float32", "bool_to_float32", "bool_to_int64", "int64_to_int32", "int64_to_bool"),
    *("to_float64", "to_float16", "to_int64", "to_int32", "to_int8", "to_uint8", "to_bool"),
)

EXPRESSIONS = {
    # filled
    "zeros": "nd.zeros(size, dtype=like.dtype)",
    "ones": "nd.ones(size, dtype=like.dtype)",
    "full": "nd.full(size, 0.5, dtype=like.dtype)",
    "empty": "nd.empty(size, dtype=like.dtype)",
    "zeros_like": "nd.zeros_like(like)",
    "ones_like": "nd.ones_like(like)",
    "full_like": "mnp.full_like(like, 0.5)",
    "empty_like": "mnp.empty_like(like)",
    "eye": "nd.eye(n, dtype=like.dtype)",
    "arange": "mnp.arange(n, dtype='int64')",
    "arange_float": "nd.arange(n, dtype=like.dtype)",
    "linspace": "nd.linspace(0.0, 1.0, n, dtype=like.dtype)",
    "logspace": "mnp.logspace(-2.0, 2.0, n, dtype=like.dtype)",
    "hann_window": "mnp.hanning(n, dtype=like.dtype)",
    "hamming_window": "mnp.hamming(n, dtype=like.dtype)",
    "blackman_window": "mnp.blackman(n, dtype=like.dtype)",
    "clone": "nd.identity(data)",
    "inplace_fill": "nd.full(shapes['data'], value, dtype=data.dtype, out=data)",
    "inplace_zero": "nd.zeros_like(data, out=data)",
    "inplace_copy": "source.copyto(data)",
    "inplace_copy_transposed": "nd.transpose(source, out=data)",
    # random
    "rand": "nd.random.uniform(0, 1, shape=size, dtype=like.dtype)",
    "randn": "nd.random.normal(0, 1, shape=size, dtype=like.dtype)",
    "randint": "nd.random.randint(0, 100, shape=size, dtype='int64')",
    "rand_like": "nd.random.uniform_like(like)",
    "randn_like": "nd.random.normal_like(like)",
    "normal": "nd.random.normal(mean, std)",
    "bernoulli": "npx.random.bernoulli(prob=data)",
    "poisson": "nd.random.poisson(data)",
    "multinomial": "nd.random.multinomial(data, shape=num_samples)",
    "inplace_uniform": "nd.random.uniform(-1, 1, shape=shapes['data'], dtype=data.dtype, out=data)",
    "inplace_normal": "nd.random.normal(1, 2, shape=shapes['data'], dtype=data.dtype, out=data)",
    "inplace_exponential": "nd.random.exponential(0.5, shape=shapes['data'], dtype=data.dtype, out=data)",
    "dropout": "nd.Dropout(data, p=p, mode='always')",
    "dropout1d": "nd.Dropout(data, p=p, axes=(2,), mode='always')",
    "dropout2d": "nd.Dropout(data, p=p, axes=(2, 3), mode='always')",
    "dropout3d": "nd.Dropout(data, p=p, axes=(2, 3, 4), mode='always')",
    # converted
    **{name: f"nd.cast(data, dtype='{name.split('to_')[-1]}')" for name in _CASTS},
    "from_channels_last": "nd.transpose(data, axes=(0, 3, 1, 2))",
    # updated: the other optimisers of the catalogue keep another state, or add epsilon elsewhere
    "sgd": "nd.sgd_update(param, grad, lr=lr, wd=weight_decay, out=param)",
}
