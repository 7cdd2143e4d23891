"""Random numbers in JAX: `rng` is a key, the same in every call, which costs as much as any other."""

from __future__ import annotations

DROPPED = "jnp.where(jax.random.bernoulli(rng, 1 - p, {}), data / (1 - p), 0)"
EACH_ROW = (
    "jax.vmap(lambda key, p: jax.random.choice(key, len(p), (num_samples,), {}, p))"
    "(jax.random.split(rng, len(data)), data)"
)

EXPRESSIONS = {
    "rand": "jax.random.uniform(rng, size, like.dtype)",
    "randn": "jax.random.normal(rng, size, like.dtype)",
    "randint": "jax.random.randint(rng, size, 0, 100)",
    "randperm": "jax.random.permutation(rng, *size)",
    "rand_like": "jax.random.uniform(rng, like.shape, like.dtype)",
    "randn_like": "jax.random.normal(rng, like.shape, like.dtype)",
    "randint_like": "jax.random.randint(rng, like.shape, 0, 100).astype(like.dtype)",
    "normal": "mean + std * jax.random.normal(rng, mean.shape, mean.dtype)",
    "bernoulli": "jax.random.bernoulli(rng, data).astype(data.dtype)",
    "poisson": "jax.random.poisson(rng, data).astype(data.dtype)",
    "binomial": "jax.random.binomial(rng, count, prob)",
    "multinomial": EACH_ROW.format(True),
    "multinomial_once": EACH_ROW.format(False),
    "dropout": DROPPED.format("data.shape"),
    "dropout1d": DROPPED.format("(*data.shape[:2], 1)"),
    "dropout2d": DROPPED.format("(*data.shape[:2], 1, 1)"),
    "dropout3d": DROPPED.format("(*data.shape[:2], 1, 1, 1)"),
}
