"""Generate text with a budget of a quarter of the weights: a small GPT with random weights, in plain torch."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera import PhasedModel

WIDTH, LAYERS, HEADS, VOCABULARY, CONTEXT = 256, 12, 8, 512, 64


class Block(nn.Module):
    """A transformer block that keeps keys and values of earlier tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, cache: list[Tensor]) -> Tensor:
        query, key, value = self.attention(F.layer_norm(x, (WIDTH,))).chunk(3, -1)
        cache[:] = [torch.cat([*cache[:1], key], 1), torch.cat([*cache[1:], value], 1)]
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (query, *cache)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=query.shape[1] > 1)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(F.layer_norm(x, (WIDTH,)))))


class TinyGPT(nn.Module):
    """A language model with tied embeddings and a method that generates tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, caches: list[list[Tensor]]) -> Tensor:
        done = caches[0][0].shape[1] if caches[0] else 0
        x = self.tokens(ids) + self.places(torch.arange(done, done + ids.shape[1]))
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache)
        logits: Tensor = self.head(x[:, -1:])
        return logits

    def generate(self, ids: Tensor, count: int) -> Tensor:
        caches: list[list[Tensor]] = [[] for _ in self.blocks]
        latest = ids
        for _ in range(count):
            latest = self(latest, caches).argmax(-1)
            ids = torch.cat([ids, latest], 1)
        return ids


if __name__ == "__main__":
    torch.manual_seed(0)
    model = TinyGPT().eval()
    size = sum(weight.nbytes for weight in model.parameters())
    prompt = torch.randint(0, VOCABULARY, (1, 5))
    with torch.no_grad(), PhasedModel(model, budget=size // 4) as phased:
        text = phased.generate(prompt, 32)
        assert torch.equal(text, model.generate(prompt, 32))
        print(
            f"32 tokens with {phased.working_bytes / 1e6:.0f} MB of working memory for {size / 1e6:.0f} MB of weights"
        )
        print(f"{phased.misses} loads on demand")
