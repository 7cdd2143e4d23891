"""A small causal language model in plain torch, as a network for the suites (`module:callable`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, VOCABULARY, TOKENS = 256, 4, 8, 4096, 64


class LanguageModel(nn.Module):
    """A transformer with tied embeddings: 7.4 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next token at every position."""
        count = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(torch.arange(count))
        mask = nn.Transformer.generate_square_subsequent_mask(count, dtype=x.dtype)
        logits: Tensor = self.head(self.norm(self.layers(x, mask=mask, is_causal=True)))
        return logits


def build_language_model() -> tuple[nn.Module, Tensor]:
    """Return the language model with random weights, and one sequence of tokens."""
    return LanguageModel().eval(), torch.randint(VOCABULARY, (1, TOKENS))
