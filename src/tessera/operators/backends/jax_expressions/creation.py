"""Making arrays in JAX. It has no uninitialised ones."""

from __future__ import annotations

EXPRESSIONS = {
    "zeros": "jnp.zeros(size, like.dtype)",
    "ones": "jnp.ones(size, like.dtype)",
    "full": "jnp.full(size, 0.5, like.dtype)",
    "zeros_like": "jnp.zeros_like(like)",
    "ones_like": "jnp.ones_like(like)",
    "full_like": "jnp.full_like(like, 0.5)",
    "new_zeros": "jnp.zeros(size, like.dtype)",
    "new_ones": "jnp.ones(size, like.dtype)",
    "new_full": "jnp.full(size, 0.5, like.dtype)",
    "eye": "jnp.eye(n, dtype=like.dtype)",
    "arange": "jnp.arange(n)",
    "arange_float": "jnp.arange(n, dtype=like.dtype)",
    "linspace": "jnp.linspace(0.0, 1.0, n, dtype=like.dtype)",
    "logspace": "jnp.logspace(-2.0, 2.0, n, dtype=like.dtype)",
    "tril_indices": "jnp.stack(jnp.tril_indices(n))",
    "triu_indices": "jnp.stack(jnp.triu_indices(n))",
    "hann_window": "jnp.hanning(n)",
    "hamming_window": "jnp.hamming(n)",
    "blackman_window": "jnp.blackman(n)",
    "bartlett_window": "jnp.bartlett(n)",
    "kaiser_window": "jnp.kaiser(n, 12.0)",
    "clone": "jnp.copy(data)",
    "complex": "lax.complex(real, imaginary)",
    "polar": "lax.complex(magnitude * jnp.cos(angle), magnitude * jnp.sin(angle))",
    "vander": "jnp.vander(data, n)",
}
