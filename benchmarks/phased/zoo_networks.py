"""Public networks with small configurations and random weights, as subjects of the exactness of phased execution.

Networks of images come also from the zoo of split images: families that have no list here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from halo.zoo_networks import import_public
from halo.zoo_networks import list_networks as list_image_networks
from torch import Tensor, nn

Call = tuple[tuple[Any, ...], dict[str, Any]]
Build = Callable[[], tuple[nn.Module, Call]]
TEXT_SIZES = {
    "vocab_size": 120,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "d_model": 32,
    "n_embd": 32,
    "n_layer": 4,
    "n_head": 4,
    "n_positions": 64,
    "num_layers": 4,
    "num_heads": 4,
    "n_layers": 4,
    "n_heads": 4,
    "dim": 32,
    "hidden_dim": 64,
    "d_ff": 64,
    "d_kv": 8,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "ffn_dim": 64,
    "word_embed_proj_dim": 32,
    "embedding_size": 32,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
    "num_local_experts": 4,
    "num_experts": 4,
    "moe_intermediate_size": 32,
    "rotary_dim": 8,
    "num_decoder_layers": 2,
}
TEXT = """
    Bert Roberta Albert DistilBert Electra GPT2 GPTNeoX GPTJ OPT Llama Mistral Gemma Qwen2 Phi Bloom Falcon Mixtral
    Qwen2Moe StableLm XLMRoberta Camembert MPNet MobileBert Ernie RoFormer Starcoder2 Cohere Olmo Qwen3 Gemma2
    Persimmon GPTBigCode CodeGen XGLM BioGpt MegatronBert ConvBert SqueezeBert Mpt Granite Glm
"""
SEQUENCES = "T5 Bart Pegasus MBart Marian M2M100 Blenderbot BlenderbotSmall"
VISION_SIZES = {
    "image_size": 64,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [16, 24, 32, 48],
    "embed_dim": 24,
    "num_heads": [1, 2, 3, 4],
}
VISION = "ViT DeiT Beit Dinov2 ConvNext ConvNextV2 ResNet RegNet ViTMAE ViTMSN"
TIMM = """
    resnet18 resnet26t mobilenetv3_small_050 efficientnet_b0 convnext_atto regnetx_002 vit_tiny_patch16_224
    deit_tiny_patch16_224 mixer_s32_224 xcit_nano_12_p16_224 levit_128s convit_tiny pit_ti_224 gmlp_ti16_224
    resmlp_12_224
    ghostnet_100 lcnet_050 tinynet_e hardcorenas_a mnasnet_small semnasnet_075 fbnetc_100 spnasnet_100 dla34
    hrnet_w18_small
    selecsls42 rexnet_100 repvgg_a0 edgenext_xx_small mobilevit_xxs visformer_tiny poolformer_s12 crossvit_9_240
    coat_lite_tiny cait_xxs24_224 swin_tiny_patch4_window7_224 efficientformer_l1 tiny_vit_5m_224 fastvit_t8
    mobileone_s0
"""
FIXED_SIZES = {"levit_128s": 224, "efficientformer_l1": 224, "crossvit_9_240": 240}  # otherwise in the name, or 64
IMAGE_FAMILIES = """
    monai segmentation-models pytorch-cifar pytorch-cifar100 Pytorch-UNet TernausNet KAIR vit-pytorch ConvNeXt
    taming-transformers
"""
TORCHVISION = """
    resnet18 squeezenet1_1 shufflenet_v2_x0_5 mnasnet0_5 mobilenet_v2 mobilenet_v3_small efficientnet_b0 regnet_y_400mf
    densenet121 convnext_tiny swin_t wide_resnet50_2 googlenet alexnet vit_b_32
"""


def list_networks() -> Iterator[tuple[str, Build]]:
    """Yield names and builders of networks; a builder returns the network and the arguments of a call."""
    yield from _list_torch_networks()
    for name in TEXT.split():
        yield f"transformers {name}", lambda name=name: _build_text(name)
    for name in SEQUENCES.split():
        yield f"transformers {name}", lambda name=name: _build_sequence(name)
    for name in VISION.split():
        yield f"transformers {name}", lambda name=name: _build_vision(name)
    yield from _list_diffusers()
    for name in TORCHVISION.split():
        yield f"torchvision {name}", lambda name=name: _build_torchvision(name)
    for name in TIMM.split():
        yield f"timm {name}", lambda name=name: (import_public("timm").create_model(name), _make_images(name))
    yield from _list_image_networks()


def _make_images(name: str) -> Call:
    size = FIXED_SIZES.get(name, 224 if name.endswith(("_224", "_tiny")) else 64)
    return (torch.randn(2, 3, size, size),), {}


def _list_image_networks() -> Iterator[tuple[str, Build]]:
    def adapt(build: Callable[[], tuple[nn.Module, tuple[Any, ...]]]) -> Build:
        def build_call() -> tuple[nn.Module, Call]:
            network, (image, *others) = build()
            return network, ((image, *(value.to(image.dtype) for value in others)), {})

        return build_call

    for name, build in list_image_networks():
        if name.split()[0] in IMAGE_FAMILIES.split():
            yield name, adapt(build)


def _build_torchvision(name: str) -> tuple[nn.Module, Call]:
    options = {"init_weights": False} if name == "googlenet" else {}
    network = import_public("torchvision.models").get_model(name, weights=None, **options)
    return network, (
        (torch.randn(2, 3, 224 if name.startswith("vit") else 64, 224 if name.startswith("vit") else 64),),
        {},
    )


def _configure(name: str, sizes: dict[str, Any]) -> Any:
    transformers = import_public("transformers")
    kind = getattr(transformers, f"{name}Config")
    default = kind()
    read_only = {key for key, value in vars(kind).items() if isinstance(value, property)}
    return kind(**{key: value for key, value in sizes.items() if hasattr(default, key) and key not in read_only})


def _build_text(name: str) -> tuple[nn.Module, Call]:
    transformers = import_public("transformers")
    config = _configure(name, TEXT_SIZES)
    kinds = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "Model")
    kind = next(f"{name}{suffix}" for suffix in kinds if hasattr(transformers, f"{name}{suffix}"))
    ids = torch.randint(3, 120, (2, 9))
    return getattr(transformers, kind)(config), ((), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def _build_sequence(name: str) -> tuple[nn.Module, Call]:
    transformers = import_public("transformers")
    config = _configure(name, TEXT_SIZES)
    kind = f"{name}MTModel" if name == "Marian" else f"{name}ForConditionalGeneration"
    ids = torch.randint(3, 120, (2, 9))
    return getattr(transformers, kind)(config), ((), {"input_ids": ids, "decoder_input_ids": ids[:, :5]})


def _build_vision(name: str) -> tuple[nn.Module, Call]:
    transformers = import_public("transformers")
    convolutional = name in ("ConvNext", "ConvNextV2", "ResNet", "RegNet")
    sizes = (
        {k: v for k, v in VISION_SIZES.items() if k not in ("depths", "hidden_sizes")}
        if not convolutional
        else VISION_SIZES
    )
    network = getattr(transformers, f"{name}Model")(_configure(name, sizes))
    return network, ((), {"pixel_values": torch.randn(2, 3, 64, 64)})


def _list_diffusers() -> Iterator[tuple[str, Build]]:
    small = {"block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1}

    def build(name: str, call: Call, **options: Any) -> tuple[nn.Module, Call]:
        return getattr(import_public("diffusers"), name)(**options), call

    x, steps, text = torch.randn(2, 4, 16, 16), torch.tensor([3, 7]), torch.randn(2, 5, 16)
    yield (
        "diffusers UNet2DModel",
        lambda: build(
            "UNet2DModel",
            ((torch.randn(2, 3, 16, 16), steps), {}),
            sample_size=16,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=8,
            **small,
        ),
    )
    yield (
        "diffusers UNet2DConditionModel",
        lambda: build(
            "UNet2DConditionModel",
            ((x, steps, text), {}),
            sample_size=16,
            cross_attention_dim=16,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=8,
            **small,
        ),
    )
    yield (
        "diffusers AutoencoderKL",
        lambda: build(
            "AutoencoderKL",
            ((torch.randn(2, 3, 16, 16),), {}),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            **small,
        ),
    )
    yield (
        "diffusers VQModel",
        lambda: build(
            "VQModel",
            ((torch.randn(2, 3, 16, 16),), {}),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            **small,
        ),
    )
    yield (
        "diffusers DiTTransformer2DModel",
        lambda: build(
            "DiTTransformer2DModel",
            ((x,), {"timestep": steps, "class_labels": torch.tensor([1, 2])}),
            num_attention_heads=2,
            attention_head_dim=16,
            in_channels=4,
            num_layers=3,
            sample_size=16,
            num_embeds_ada_norm=10,
        ),
    )
    yield (
        "diffusers PriorTransformer",
        lambda: build(
            "PriorTransformer",
            (
                (torch.randn(2, 16),),
                {"timestep": steps, "proj_embedding": torch.randn(2, 16), "encoder_hidden_states": text},
            ),
            num_attention_heads=2,
            attention_head_dim=8,
            num_layers=3,
            embedding_dim=16,
            num_embeddings=5,
            additional_embeddings=4,
        ),
    )


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.first, self.last = kind(16, 24, 3, batch_first=True, bidirectional=True), nn.Linear(48, 4)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.first(x)[0])
        return result


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(16, 2, batch_first=True) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, x, x, need_weights=False)[0]
        return x


class _Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))
        self.register_buffer("calls", torch.zeros(40, 40))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        for layer in self.layers:
            x = layer(x) + self.calls.sum()
        return x


def _list_torch_networks() -> Iterator[tuple[str, Build]]:
    x = torch.randn(2, 7, 16)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        yield f"torch {kind.__name__}", lambda kind=kind: (_Recurrent(kind), ((x,), {}))
    yield "torch MultiheadAttention", lambda: (_Attention(), ((x,), {}))
    yield "torch written buffer", lambda: (_Written(), ((x,), {}))
    yield (
        "torch TransformerEncoder",
        lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 4), ((x,), {})),
    )
    yield (
        "torch Transformer",
        lambda: (nn.Transformer(16, 2, 2, 2, 32, batch_first=True), ((x, torch.randn(2, 5, 16)), {})),
    )
    yield (
        "torch parametrizations",
        lambda: (
            nn.Sequential(
                *(nn.utils.parametrizations.weight_norm(nn.Linear(16, 16)) for _ in range(3)),
                nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)),
            ),
            ((x,), {}),
        ),
    )
