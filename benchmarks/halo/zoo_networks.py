"""The public networks of the zoo: names and builders, by family.

A builder returns a network with random weights and the arguments of its forward; the first argument is the image that
is split. Networks are kept small (few blocks, small images): exactness depends on the operators, not on the size.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn

Build = Callable[[], tuple[nn.Module, tuple[Any, ...]]]
REPOSITORIES = os.environ.get("TESSERA_ZOO_REPOSITORIES")  # folder with checkouts of public repositories; optional

TIMM = """
    seresnet18 skresnet18 res2net50_26w_4s convnextv2_atto mobilenetv3_small_050 mobilenetv4_conv_small
    tf_efficientnet_b0 mixnet_s lcnet_050 ghostnet_050 hrnet_w18_small dla34 nf_regnet_b0 regnetx_002
    edgenext_xx_small poolformer_s12 pvt_v2_b0 mobilevit_xxs mobilevitv2_050 repvit_m0_9 fastvit_t8
    mobileone_s0 rexnet_100 resnest14d starnet_s1 hgnetv2_b0 efficientvit_m0 efficientvit_b0 tiny_vit_5m_224
    mambaout_femto shvit_s1 swiftformer_xs lambda_resnet26t halonet26t convnext_atto tinynet_e dpn48b repvgg_a0
    inception_next_atto gernet_s hardcorenas_a mnasnet_small semnasnet_075 fbnetc_100 spnasnet_100 ese_vovnet19b_dw
    cs3darknet_focus_s darknet17 resnet10t resnetv2_18 ecaresnet26t legacy_seresnet18 nf_resnet26 regnety_002
    regnetz_005 efficientnet_lite0 ghostnetv2_100 ghostnetv3_050 mobilenet_edgetpu_v2_xs mobilenetv1_100
    mobilenetv2_035 repghostnet_050 hgnet_tiny csatv2 fasternet_t0 poolformerv2_s12 rexnetr_100
    mobilenetv4_hybrid_medium resnext26ts gcresnet33ts dla46_c resnet18d davit_tiny
    caformer_s18 sequencer2d_s focalnet_tiny_srf twins_svt_small
    test_byobnet test_convnext test_convnext2 test_convnext3 test_efficientnet test_efficientnet_evos
    test_efficientnet_gn test_efficientnet_ln test_mambaout test_nfnet test_resnet test_vit test_vit2 test_vit4
"""
TIMM_FIXED_SIZE = """
    vit_tiny_patch16_224 xcit_nano_12_p16_224 coatnet_nano_rw_224 gmlp_ti16_224 convit_tiny pit_ti_224 test_maxvit
    test_coatnet test_vit3 test_vit_relpos maxxvit_rmlp_nano_rw_256 coatnext_nano_rw_224 levit_128s levit_conv_128s
    mixer_s32_224 resmlp_12_224 coat_tiny coat_lite_tiny efficientformerv2_s0 mvitv2_tiny gcvit_xxtiny visformer_tiny
    botnet26t_256 volo_d1_224 nest_tiny cait_xxs24_224 deit_tiny_patch16_224 eca_botnext26ts_256 hiera_tiny_224
    tnt_s_legacy_patch16_224 gmixer_12_224 maxvit_tiny_rw_224
"""  # networks whose weights depend on the size of the image
TIMM_SWIN = "swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 swinv2_cr_tiny_ns_224"
PYTORCHCV = {
    32: """
        preresnet20 sepreresnet20 densenet40_k12 xdensenet40_2_k24_bc ror3_56 diaresnet20 nin pyramidnet110_a48
    """,
    64: """
        dicenet_wd5 resnesta18 lwopenpose2d_mobilenet_cmupan_coco cgnet dabnet lednet linknet fpenet
        enet esnet erfnet edanet espcnet centernet_resnet18_voc simplepose_resnet18_coco
    """,
}
TORCHVISION = {
    64: """
        resnet18 squeezenet1_1 shufflenet_v2_x0_5 mnasnet0_5 mobilenet_v2 mobilenet_v3_small
        efficientnet_b0 regnet_y_400mf swin_t swin_v2_t convnext_tiny densenet121 mobilenet_v3_large
    """,
    96: "googlenet inception_v3",
}
TORCHVISION_SEGMENTATION = "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large"
TORCHVISION_VIDEO = "r3d_18 mc3_18 r2plus1d_18 swin3d_t"
SEGMENTATION = "Unet UnetPlusPlus FPN Linknet PSPNet DeepLabV3 DeepLabV3Plus PAN MAnet UPerNet Segformer DPT"
SEGMENTATION_ENCODERS = (
    "timm-efficientnet-b0 mit_b0 mobilenet_v2 densenet121 timm-skresnet18 timm-regnetx_002 dpn68 tu-resnet10t"
)
YOLO = """
    yolov8n yolov8n-seg yolov8n-pose yolov8n-obb yolov8n-cls yolov5n yolov6n yolov9t yolov10n
    yolo11n yolo11n-seg yolo11n-pose yolo12n yolov3-tiny yolov8n-p2 yolov8n-ghost yolo26n yolo26n-seg
    yolov8n-rtdetr yolo11n-obb yolo12n-seg
"""
VOLUME, IMAGE = (1, 1, 24, 24, 24), (2, 1, 48, 48)
MONAI: list[tuple[str, str, tuple[Any, ...] | dict[str, Any], tuple[int, ...]]] = [
    ("UNet 3-D", "UNet", (3, 1, 2, (8, 16, 32), (2, 2)), VOLUME),
    ("UNet 2-D", "UNet", (2, 1, 2, (8, 16, 32), (2, 2), 3, 3, 2), IMAGE),
    ("BasicUNet 3-D", "BasicUNet", (3, 1, 2, (8, 8, 16, 16, 32, 8)), (1, 1, 32, 32, 32)),
    ("BasicUNetPlusPlus 2-D", "BasicUNetPlusPlus", (2, 1, 2, (8, 8, 16, 16, 32, 8)), IMAGE),
    ("DynUNet 3-D", "DynUNet", (3, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], (8, 16, 32)), VOLUME),
    ("SegResNet 3-D", "SegResNet", (3, 8, 1, 2), VOLUME),
    ("SegResNetDS 3-D", "SegResNetDS", (3, 8, 1, 2), (1, 1, 32, 32, 32)),
    ("AttentionUnet 2-D", "AttentionUnet", (2, 1, 2, (8, 16, 32), (2, 2)), IMAGE),
    ("DenseNet 3-D", "DenseNet", (3, 1, 2, 8, 4, (2, 2, 2)), (2, 1, 32, 32, 32)),
    ("HighResNet 3-D", "HighResNet", (3, 1, 2), (1, 1, 16, 16, 16)),
    ("UNETR 3-D", "UNETR", (1, 2, (32, 32, 32), 8, 48, 64, 4), (1, 1, 32, 32, 32)),
    ("FlexibleUNet 2-D", "FlexibleUNet", (3, 2, "efficientnet-b0"), (2, 3, 64, 64)),
    ("EfficientNetBN 2-D", "EfficientNetBN", ("efficientnet-b0", False, True, 2, 1), (2, 1, 64, 64)),
    ("ResNet 3-D", "resnet10", {"spatial_dims": 3, "n_input_channels": 1}, (2, 1, 32, 32, 32)),
    ("AutoEncoder 2-D", "AutoEncoder", (2, 1, 1, (4, 8, 16), (2, 2, 2)), IMAGE),
    ("VNet 3-D", "VNet", (3, 1, 2), (1, 1, 16, 16, 16)),
    ("SegResNetVAE 3-D", "SegResNetVAE", {"input_image_size": (16, 16, 16), "vae_nz": 8}, (1, 1, 16, 16, 16)),
    ("SwinUNETR 3-D", "SwinUNETR", (1, 2, 2, (1, 1, 1, 1), (1, 2, 2, 2), 4, 12), (1, 1, 64, 32, 32)),
    ("SEResNet50 2-D", "SEResNet50", {"spatial_dims": 2, "in_channels": 1, "num_classes": 2}, (2, 1, 32, 32)),
    ("DynUNet 2-D", "DynUNet", (2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], (8, 16, 32)), IMAGE),
    ("SegResNet 2-D", "SegResNet", (2, 8, 1, 2), IMAGE),
    ("AttentionUnet 3-D", "AttentionUnet", (3, 1, 2, (8, 16), (2,)), VOLUME),
    ("ViT 2-D", "ViT", (1, (48, 48), (8, 8), 32, 64, 2, 2, "conv", "learnable", False, 2, 0.0, 2), IMAGE),
    ("VarAutoEncoder 2-D", "VarAutoEncoder", (2, (1, 48, 48), 1, 4, (4, 8), (2, 2)), IMAGE),
    ("Discriminator 2-D", "Discriminator", ((1, 48, 48), (4, 8), (2, 2)), IMAGE),
    ("Regressor 2-D", "Regressor", ((1, 48, 48), (2,), (4, 8), (2, 2)), IMAGE),
    ("PatchDiscriminator 2-D", "PatchDiscriminator", (2, 8, 1, 1, 2), IMAGE),
    ("VoxelMorphUNet 3-D", "VoxelMorphUNet", (3, 2, 3, (8, 8, 8, 8, 8, 8), (4, 4)), (1, 2, 16, 16, 16)),
    ("VISTA3D encoder", "SegResNetDS2", (3, 8, 1, 2), (1, 1, 32, 32, 32)),
]
VIT: dict[str, Any] = {
    "image_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
DPT = {"neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 16}
RTDETR = {"decoder_attention_heads": 2, "encoder_attention_heads": 2, "decoder_in_channels": [32] * 3}
TRANSFORMERS: list[tuple[str, dict[str, Any], int]] = [  # class, options of its configuration, image size
    ("ResNetModel", {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32], "embedding_size": 16}, 64),
    ("RegNetModel", {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32], "groups_width": 8}, 64),
    ("BitModel", {"depths": [1, 1, 1, 1], "hidden_sizes": [32, 32, 64, 64], "num_groups": 4}, 64),
    ("ConvNextV2Model", {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32]}, 64),
    ("SegformerForSemanticSegmentation", {"hidden_sizes": [16, 16, 32, 32], "decoder_hidden_size": 16}, 64),
    ("MobileNetV1Model", {}, 64),
    ("MobileViTForSemanticSegmentation", {}, 64),
    ("PoolFormerModel", {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32]}, 64),
    ("SwinModel", {"image_size": 64, "window_size": 4, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4]}, 64),
    ("Swin2SRForImageSuperResolution", {"image_size": 24, "embed_dim": 24, "depths": [2], "num_heads": [2]}, 24),
    (
        "ViTModel",
        {
            "image_size": 64,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        },
        64,
    ),
    (
        "PvtModel",
        {"image_size": 64, "hidden_sizes": [16] * 4, "depths": [1] * 4, "num_attention_heads": [1, 2, 4, 8]},
        64,
    ),
    ("FocalNetModel", {"image_size": 64, "embed_dim": 16, "depths": [1, 1, 1, 1]}, 64),
    (
        "GLPNForDepthEstimation",
        {"hidden_sizes": [16] * 4, "decoder_hidden_size": 16, "num_attention_heads": [1, 2, 4, 8]},
        64,
    ),
    ("EfficientNetModel", {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320}, 64),
    ("SuperPointForKeypointDetection", {}, 64),
    ("ConvNextModel", {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32]}, 64),
    ("MobileNetV2Model", {"depth_multiplier": 0.35}, 64),
    ("MobileViTV2Model", {"width_multiplier": 0.25}, 64),
    (
        "PvtV2Model",
        {"image_size": 64, "hidden_sizes": [16] * 4, "depths": [1] * 4, "num_attention_heads": [1, 2, 4, 8]},
        64,
    ),
    ("SwiftFormerModel", {"depths": [1, 1, 1, 1], "embed_dims": [16, 16, 32, 32]}, 64),
    ("Swinv2Model", {"image_size": 64, "window_size": 4, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4]}, 64),
    ("DonutSwinModel", {"image_size": 64, "window_size": 4, "embed_dim": 24, "depths": [2], "num_heads": [2]}, 64),
    ("LevitModel", {"image_size": 64, "hidden_sizes": [16, 32, 48], "key_dim": [4, 4, 4]}, 64),
    ("HieraModel", {"image_size": [64, 64], "embed_dim": 16, "depths": [1, 1, 1, 1]}, 64),
    ("CLIPVisionModel", {**VIT, "patch_size": 16}, 64),
    ("SiglipVisionModel", {**VIT, "patch_size": 16}, 64),
    ("DeiTModel", VIT, 64),
    ("BeitModel", {**VIT, "use_relative_position_bias": True}, 64),
    ("YolosModel", {**VIT, "image_size": [64, 64], "num_detection_tokens": 5}, 64),
    ("DPTForDepthEstimation", {**VIT, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]} | DPT, 64),
    ("UperNetForSemanticSegmentation", {"hidden_size": 16, "auxiliary_channels": 16}, 64),
    ("TextNetModel", {}, 64),
    ("HGNetV2ForImageClassification", {}, 64),
    ("RTDetrModel", {"d_model": 32, "encoder_hidden_dim": 32, "num_queries": 10, "decoder_layers": 2} | RTDETR, 64),
    ("Dinov2Model", {"image_size": 56, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}, 56),
]
UNUSED_MODULES = (
    "skimage",
    "skimage.color",
    "skimage.metrics",
    "lmdb",
    "torchsummary",
    "torchsummaryX",
    "ema_pytorch",
)  # imported beside the networks, not used by them
SMALL_VIT = {
    "image_size": 64,
    "patch_size": 8,
    "num_classes": 5,
    "dim": 32,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 64,
}
LEVELS = {"num_hierarchies": 2, "block_repeats": (1, 1)}
SCALES = {"reduction_factor": (4, 2), "window_size": (8, None), "ssa_dim_key": 8, "ssa_dim_value": 8}
VQGAN = {
    "ch": 32,
    "out_ch": 3,
    "ch_mult": (1, 2),
    "num_res_blocks": 1,
    "attn_resolutions": [16],
    "in_channels": 3,
    "resolution": 32,
    "z_channels": 4,
}
STEP = torch.tensor([3])
OTHER_ARGUMENTS: dict[str, tuple[Any, ...]] = {  # of the forward, after the image
    "DiT DiT": (STEP, torch.tensor([1])),
    "stargan Generator": (torch.ones(1, 5, dtype=torch.float64),),
    "guided-diffusion UNetModel": (STEP,),
    "denoising-diffusion-pytorch Unet": (STEP,),
    "KAIR FFDNet": (torch.full((1, 1, 1, 1), 0.1, dtype=torch.float64),),
}
# Checkout, folder on the path, module, class or function, its arguments, shape of the image.
CHECKOUTS: list[tuple[str, str, str, str, tuple[Any, ...] | dict[str, Any], tuple[int, ...]]] = [
    *(
        ("pytorch-cifar", ".", "models", name, (), (2, 3, 32, 32))
        for name in """
            PreActResNet18 GoogLeNet MobileNet
            RegNetX_200MF SimpleDLA LeNet EfficientNetB0 SENet18 MobileNetV2 PNASNetA
        """.split()  # noqa: SIM905
    ),
    ("pytorch-cifar", ".", "models", "ShuffleNetV2", (1,), (2, 3, 32, 32)),
    *(
        ("pytorch-cifar100", ".", f"models.{module}", name, (), (2, 3, 32, 32))
        for module, name in (
            ("attention", "attention56"),
            ("rir", "resnet_in_resnet"),
            ("squeezenet", "squeezenet"),
            ("shufflenet", "shufflenet"),
            ("xception", "xception"),
            ("mobilenetv2", "mobilenetv2"),
            ("senet", "seresnet18"),
            ("preactresnet", "preactresnet18"),
            ("shufflenetv2", "shufflenetv2"),
            ("stochasticdepth", "stochastic_depth_resnet18"),
        )
    ),
    ("MPI4DL", "src", "models.resnet", "get_resnet_v1", ((2, 3, 32, 32), 20), (2, 3, 32, 32)),
    ("MPI4DL", "src", "models.resnet", "get_resnet_v2", ((2, 3, 32, 32), 29), (2, 3, 32, 32)),
    ("MPI4DL", "src", "models.amoebanet", "amoebanetd", (10, 3, 32), (2, 3, 64, 64)),
    ("TernausNet", ".", "ternausnet.models", "UNet11", (), (1, 3, 64, 64)),
    ("TernausNet", ".", "ternausnet.models", "UNet16", (1, 8, False), (1, 3, 64, 64)),
    ("Pytorch-UNet", ".", "unet", "UNet", (3, 2, False), (1, 3, 48, 40)),
    ("Pytorch-UNet", ".", "unet", "UNet", (3, 2, True), (1, 3, 50, 46)),
    *(
        ("pytorch-3dunet", ".", "pytorch3dunet.unet3d.model", name, (1, 2, True, 8), shape)
        for name, shape in (
            ("UNet3D", (1, 1, 16, 24, 24)),
            ("ResidualUNet3D", (1, 1, 16, 32, 32)),
            ("ResidualUNetSE3D", (1, 1, 16, 32, 32)),
            ("UNet2D", (1, 1, 48, 48)),
        )
    ),
    *(
        ("vit-pytorch", ".", f"vit_pytorch.{module}", name, options, (1, 3, 64, 64))
        for module, name, options in (
            ("simple_vit", "SimpleViT", SMALL_VIT),
            ("simple_vit_with_fft", "SimpleViT", SMALL_VIT | {"freq_patch_size": 16}),
            ("simple_uvit", "SimpleUViT", SMALL_VIT),
            ("vit_for_small_dataset", "ViT", SMALL_VIT),
            ("deepvit", "DeepViT", SMALL_VIT),
            ("rvt", "RvT", SMALL_VIT),
            ("parallel_vit", "ViT", SMALL_VIT),
            ("cait", "CaiT", SMALL_VIT | {"cls_depth": 1}),
            ("xcit", "XCiT", SMALL_VIT | {"cls_depth": 1}),
            ("cct", "CCT", {"img_size": 64, "embedding_dim": 32, "num_layers": 2, "num_heads": 2, "num_classes": 5}),
            ("cvt", "CvT", {"num_classes": 5, **{f"s{n}_emb_dim": 16 for n in (1, 2, 3)}, "s3_depth": 1}),
            ("max_vit", "MaxViT", {"num_classes": 5, "dim": 16, "depth": (1, 1), "dim_head": 8, "window_size": 4}),
            ("nest", "NesT", {"image_size": 64, "patch_size": 4, "dim": 16, "heads": 2, "num_classes": 5} | LEVELS),
            ("scalable_vit", "ScalableViT", {"num_classes": 5, "dim": 16, "heads": 2, "depth": (1, 1)} | SCALES),
        )
    ),
    *(("Image_Segmentation", ".", "network", name, (), (1, 3, 32, 32)) for name in ("AttU_Net", "R2U_Net")),
    ("brain-segmentation-pytorch", ".", "unet", "UNet", (3, 1, 8), (1, 3, 32, 48)),
    ("pytorch-unet", ".", "unet", "UNet", (3, 2, 3, 3, False, True, "upsample"), (1, 3, 64, 60)),
    ("pytorch-unet", ".", "unet", "UNet", (3, 2, 3, 3, True, True, "upconv"), (1, 3, 64, 60)),
    ("stargan", ".", "model", "Generator", (8, 5, 2), (1, 3, 32, 32)),
    ("stargan", ".", "model", "Discriminator", (64, 8, 5, 3), (1, 3, 64, 64)),
    ("ConvNeXt", ".", "models.convnext", "ConvNeXt", (3, 5, [1, 1, 1, 1], [8, 8, 16, 16]), (1, 3, 64, 64)),
    ("ConvNeXt", ".", "models.convnext_isotropic", "ConvNeXtIsotropic", (3, 5, 2, 16), (1, 3, 64, 64)),
    ("DiT", ".", "models", "DiT", (16, 2, 4, 32, 2, 2), (1, 4, 16, 16)),
    (
        "Restormer",
        ".",
        "basicsr.models.archs.restormer_arch",
        "Restormer",
        (3, 3, 8, [1, 1, 1, 1], 1, [1, 1, 2, 2]),
        (1, 3, 32, 40),
    ),
    (
        "guided-diffusion",
        ".",
        "guided_diffusion.unet",
        "UNetModel",
        (32, 3, 32, 3, 1, (2,), 0, (1, 2), True, 2, None, True, False, 2),
        (1, 3, 32, 32),
    ),
    (
        "denoising-diffusion-pytorch",
        ".",
        "denoising_diffusion_pytorch.denoising_diffusion_pytorch",
        "Unet",
        {"dim": 16, "dim_mults": (1, 2), "flash_attn": False},
        (1, 3, 32, 32),
    ),
    *(
        ("taming-transformers", ".", "taming.modules.diffusionmodules.model", name, VQGAN, shape)
        for name, shape in (("Encoder", (1, 3, 32, 32)), ("Decoder", (1, 4, 16, 16)))
    ),
    ("ESRGAN", ".", "RRDBNet_arch", "RRDBNet", (3, 3, 16, 2, 8), (1, 3, 20, 24)),
    ("pytorch-SRResNet", ".", "srresnet", "_NetG", (), (1, 3, 16, 16)),
    ("MPRNet", "Deblurring", "MPRNet", "MPRNet", (3, 3, 16, 8, 8, 2), (1, 3, 32, 40)),
    ("NAFNet", ".", "basicsr.models.archs.NAFNet_arch", "NAFNet", (3, 8, 1, [1, 1], [1, 1]), (1, 3, 34, 46)),
    *(
        ("MedicalZooPytorch", ".", f"lib.medzoo.{module}", name, arguments, shape)
        for module, name, arguments, shape in (
            ("Unet3D", "UNet3D", (1, 2, 8), (1, 1, 32, 32, 32)),
            ("Unet2D", "Unet", (1, 2), (1, 1, 48, 48)),
            ("Vnet", "VNetLight", (), (1, 1, 16, 16, 16)),
            ("DenseVoxelNet", "DenseVoxelNet", (1, 2), (1, 1, 16, 16, 16)),
            ("HyperDensenet", "HyperDenseNet_2Mod", (2,), (1, 2, 24, 24, 24)),
        )
    ),
    *(
        ("KAIR", ".", f"models.network_{module}", name, arguments, shape)
        for module, name, arguments, shape in (
            ("dncnn", "DnCNN", (1, 1, 16, 5), (1, 1, 24, 28)),
            ("dncnn", "IRCNN", (1, 1, 16), (1, 1, 24, 28)),
            ("imdn", "IMDN", (3, 3, 16, 2), (1, 3, 20, 24)),
            ("msrresnet", "MSRResNet1", (3, 3, 16, 2), (1, 3, 20, 24)),
            ("unet", "UNetRes", (3, 3, [8, 16, 16, 32], 1), (1, 3, 32, 40)),
            ("srmd", "SRMD", (19, 3, 16, 3), (1, 19, 20, 24)),
            ("dpsr", "MSRResNet_prior", (4, 3, 16, 2), (1, 4, 20, 24)),
            ("swinir", "SwinIR", (16, 1, 3, 24, [2, 2], [2, 2], 4), (1, 3, 16, 24)),
            ("ffdnet", "FFDNet", (1, 1, 16, 4), (1, 1, 24, 28)),
            ("rrdbnet", "RRDBNet", (3, 3, 16, 2, 8), (1, 3, 20, 24)),
            ("discriminator", "Discriminator_PatchGAN", (3, 8), (1, 3, 64, 64)),
            ("discriminator", "Discriminator_UNet", (3, 8), (1, 3, 64, 64)),
        )
    ),
]


def list_networks() -> Iterator[tuple[str, Build]]:
    """Yield names, which begin with the family, and builders of networks."""
    yield from _list_diffusers()
    for name in YOLO.split():
        yield f"ultralytics {name}", lambda name=name: _make_yolo(name)
    if REPOSITORIES:
        for folder, path, module, name, arguments, shape in CHECKOUTS:
            label = f"{folder} {name}" + (f" {arguments[-1]}" if name == "UNet" else "")
            if folder == "vit-pytorch":
                label = f"{folder} {module.split('.')[-1]}"
            others = OTHER_ARGUMENTS.get(label, ())
            yield label, _make_builder(module, name, arguments, shape, Path(REPOSITORIES, folder, path), others)
    for name, options, size in TRANSFORMERS:
        yield f"transformers {name}", lambda name=name, options=options, size=size: _make_hf(name, options, size)
    for label, name, arguments, shape in MONAI:
        yield f"monai {label}", _make_builder("monai.networks.nets", name, arguments, shape)
    for name in SEGMENTATION.split():
        yield f"segmentation-models {name}", lambda name=name: _make_segmentation(name)
    for encoder in SEGMENTATION_ENCODERS.split():
        yield f"segmentation-models Unet {encoder}", lambda encoder=encoder: _make_segmentation("Unet", encoder)
    yield from _list_torchvision()
    for name in TIMM.split():
        yield f"timm {name}", lambda name=name: (import_public("timm").create_model(name), _make_image(64))
    for name in TIMM_FIXED_SIZE.split():
        yield f"timm {name}", lambda name=name: _make_timm(name, 160 if name == "test_maxvit" else 64)
    swin = {"window_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}
    for name in TIMM_SWIN.split():
        yield f"timm {name}", lambda name=name: _make_timm(name, 64, **swin)
    for size, names in PYTORCHCV.items():
        for name in names.split():
            yield f"pytorchcv {name}", lambda name=name, size=size: _make_pytorchcv(name, size)


def import_public(name: str, path: Path | None = None) -> Any:
    """Import a module of a package, or of a checkout in the given folder."""
    _define_missing_operators()
    if path is not None:  # several repositories have a package `models`
        root = name.split(".")[0]
        for known in [known for known in sys.modules if known.split(".")[0] in (root, "torchgems", "utils")]:
            del sys.modules[known]
        sys.path.insert(0, str(path))
        for missing in UNUSED_MODULES:
            sys.modules.setdefault(missing, MagicMock())
    try:
        return importlib.import_module(name)
    finally:
        if path is not None:
            sys.path.remove(str(path))


def _define_missing_operators(known: list[Any] = []) -> None:  # noqa: B006
    """Define torchvision's compiled operators: its import needs them, and the CUDA build's cannot be loaded."""
    if not known:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        known.append(library)


def _make_image(size: int, samples: int = 2) -> tuple[Tensor]:
    return (torch.randn(samples, 3, size, size),)


def _make_builder(
    module: str,
    name: str,
    arguments: tuple[Any, ...] | dict[str, Any],
    shape: Sequence[int],
    path: Path | None = None,
    others: tuple[Any, ...] = (),
) -> Build:
    def build() -> tuple[nn.Module, tuple[Any, ...]]:
        kind = getattr(import_public(module, path), name)
        network = kind(**arguments) if isinstance(arguments, dict) else kind(*arguments)
        return network, (torch.randn(*shape), *others)

    return build


def _make_timm(name: str, size: int, **options: Any) -> tuple[nn.Module, tuple[Any, ...]]:
    return import_public("timm").create_model(name, img_size=size, **options), _make_image(size)


def _make_pytorchcv(name: str, size: int) -> tuple[nn.Module, tuple[Any, ...]]:
    import_public("torchvision")
    provider = import_public("pytorchcv.model_provider")
    full = next(known for known in (name, f"{name}_cifar10", f"{name}_cityscapes") if known in provider._models)
    return provider.get_model(full), _make_image(size)


def _make_segmentation(name: str, encoder: str = "resnet18") -> tuple[nn.Module, tuple[Any, ...]]:
    module = import_public("segmentation_models_pytorch")
    if name == "DPT":
        network = module.DPT("tu-vit_tiny_patch16_224", encoder_weights=None, dynamic_img_size=True)
        return network, (torch.randn(2, 3, 64, 64),)
    size = (128, 128) if name == "PAN" else (64, 96)  # PAN requires four pixels after the encoder
    return getattr(module, name)(encoder, encoder_weights=None), (torch.randn(2, 3, *size),)


def _make_yolo(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    tasks = import_public("ultralytics.nn.tasks")
    suffix = name.split("-")[-1]
    kinds = {
        "seg": "Segmentation",
        "pose": "Pose",
        "obb": "OBB",
        "cls": "Classification",
        "rtdetr": "RTDETRDetection",
    }
    kind = getattr(tasks, f"{kinds.get(suffix, 'Detection')}Model")
    return kind(f"{name}.yaml", verbose=False), (torch.randn(2, 3, 64, 96),)


def _make_hf(name: str, options: dict[str, Any], size: int) -> tuple[nn.Module, tuple[Any, ...]]:
    module = import_public("transformers")
    kind = getattr(module, name)
    return kind(kind.config_class(**options)), _make_image(size)


def _list_torchvision() -> Iterator[tuple[str, Build]]:
    def make(name: str, *shape: int, **options: Any) -> Build:
        return lambda: (
            import_public("torchvision.models").get_model(name, weights=None, **options),
            (torch.randn(*shape),),
        )

    for size, names in TORCHVISION.items():
        for name in names.split():
            yield f"torchvision {name}", make(name, 2, 3, size, size)
    for name in TORCHVISION_SEGMENTATION.split():
        yield f"torchvision {name}", make(name, 2, 3, 64, 64, weights_backbone=None)
    for name in TORCHVISION_VIDEO.split():
        yield f"torchvision {name}", make(name, 1, 3, 4, 48, 48)
    yield (
        "torchvision resnet18 FPN",
        lambda: (
            import_public("torchvision.models.detection.backbone_utils").resnet_fpn_backbone(
                backbone_name="resnet18", weights=None, trainable_layers=5
            ),
            _make_image(96),
        ),
    )


class _Decoder(nn.Module):
    """The decoder of a VAE as a network."""

    def __init__(self, vae: nn.Module) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, latent: Tensor) -> Any:
        return self.vae.decode(latent)


def _list_diffusers() -> Iterator[tuple[str, Build]]:
    small: dict[str, Any] = {"block_out_channels": (32, 64), "norm_num_groups": 8, "layers_per_block": 1}
    vae: dict[str, Any] = {
        **small,
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "latent_channels": 4,
    }

    def make(name: str, shape: Sequence[int], *others: Any, decoder: bool = False, **options: Any) -> Build:
        def build() -> tuple[nn.Module, tuple[Any, ...]]:
            network = getattr(import_public("diffusers"), name)(**options)
            return (_Decoder(network) if decoder else network), (torch.randn(*shape), *others)

        return build

    step = torch.tensor(3)
    text = torch.randn(1, 7, 16, dtype=torch.float64)
    yield "diffusers AutoencoderKL decoder", make("AutoencoderKL", (1, 4, 24, 24), decoder=True, **vae)
    yield "diffusers AutoencoderKL", make("AutoencoderKL", (1, 3, 64, 48), **vae)
    unet = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    yield "diffusers UNet2DModel", make("UNet2DModel", (1, 3, 32, 32), step, sample_size=32, **unet, **small)
    cross: dict[str, Any] = {
        **small,
        "sample_size": 32,
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "cross_attention_dim": 16,
        "attention_head_dim": 4,
    }
    up = {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
    yield "diffusers UNet2DConditionModel", make("UNet2DConditionModel", (1, 4, 32, 32), step, text, **cross, **up)
    yield "diffusers VQModel", make("VQModel", (1, 3, 32, 32), norm_num_groups=8, block_out_channels=(32,))
    yield (
        "diffusers AsymmetricAutoencoderKL",
        make(
            "AsymmetricAutoencoderKL",
            (1, 3, 32, 40),
            down_block_types=("DownEncoderBlock2D",) * 2,
            down_block_out_channels=(32, 64),
            up_block_types=("UpDecoderBlock2D",) * 2,
            up_block_out_channels=(32, 64),
        ),
    )
    yield (
        "diffusers AutoencoderTiny",
        make(
            "AutoencoderTiny",
            (1, 3, 32, 40),
            encoder_block_out_channels=(16, 16),
            decoder_block_out_channels=(16, 16),
            num_encoder_blocks=(1, 2),
            num_decoder_blocks=(2, 1),
        ),
    )
    yield (
        "diffusers AutoencoderDC",
        make(
            "AutoencoderDC",
            (1, 3, 32, 32),
            latent_channels=4,
            attention_head_dim=2,
            encoder_block_types=("ResBlock", "EfficientViTBlock"),
            decoder_block_types=("ResBlock", "EfficientViTBlock"),
            encoder_block_out_channels=(8, 8),
            decoder_block_out_channels=(8, 8),
            encoder_qkv_multiscales=((), (5,)),
            decoder_qkv_multiscales=((), (5,)),
            encoder_layers_per_block=(1, 1),
            decoder_layers_per_block=(1, 1),
            downsample_block_type="conv",
            upsample_block_type="interpolate",
            decoder_norm_types="rms_norm",
            decoder_act_fns="silu",
        ),
    )
    wan: dict[str, Any] = {"base_dim": 8, "z_dim": 4, "num_res_blocks": 1}
    yield (
        "diffusers AutoencoderKLWan image",
        make("AutoencoderKLWan", (1, 3, 1, 32, 32), dim_mult=[1, 2], temperal_downsample=[False], **wan),
    )
    yield (
        "diffusers AutoencoderKLWan video",
        make("AutoencoderKLWan", (1, 3, 5, 32, 32), dim_mult=[1, 2, 2], temperal_downsample=[False, True], **wan),
    )
    yield (
        "diffusers AutoencoderKLQwenImage",
        make("AutoencoderKLQwenImage", (1, 3, 1, 32, 32), dim_mult=[1, 2], temperal_downsample=[False], **wan),
    )
    yield (
        "diffusers AutoencoderKLCogVideoX",
        make(
            "AutoencoderKLCogVideoX",
            (1, 3, 5, 32, 32),
            down_block_types=("CogVideoXDownBlock3D",) * 3,
            up_block_types=("CogVideoXUpBlock3D",) * 3,
            block_out_channels=(8, 8, 8),
            latent_channels=4,
            layers_per_block=1,
            norm_num_groups=2,
            temporal_compression_ratio=4,
        ),
    )
    yield (
        "diffusers AutoencoderKLHunyuanVideo",
        make(
            "AutoencoderKLHunyuanVideo",
            (1, 3, 5, 32, 32),
            latent_channels=4,
            down_block_types=("HunyuanVideoDownBlock3D",) * 4,
            up_block_types=("HunyuanVideoUpBlock3D",) * 4,
            block_out_channels=(8, 8, 8, 8),
            layers_per_block=1,
            norm_num_groups=4,
            spatial_compression_ratio=8,
            temporal_compression_ratio=4,
        ),
    )
    yield (
        "diffusers AutoencoderKLLTXVideo",
        make(
            "AutoencoderKLLTXVideo",
            (1, 3, 9, 32, 32),
            latent_channels=8,
            block_out_channels=(8, 8, 8, 8),
            decoder_block_out_channels=(8, 8, 8, 8),
            layers_per_block=(1, 1, 1, 1, 1),
            decoder_layers_per_block=(1, 1, 1, 1, 1),
            spatio_temporal_scaling=(True, True, False, False),
            decoder_spatio_temporal_scaling=(True, True, False, False),
            decoder_inject_noise=(False,) * 5,
            upsample_residual=(False,) * 4,
            upsample_factor=(1,) * 4,
            patch_size=1,
        ),
    )
    yield (
        "diffusers AutoencoderKLTemporalDecoder",
        make(
            "AutoencoderKLTemporalDecoder",
            (2, 3, 32, 32),
            False,
            False,
            None,
            2,
            block_out_channels=(32, 64),
            down_block_types=("DownEncoderBlock2D",) * 2,
        ),
    )
    yield (
        "diffusers UNet3DConditionModel",
        make(
            "UNet3DConditionModel",
            (1, 4, 2, 16, 16),
            step,
            text,
            sample_size=16,
            down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
            up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
            block_out_channels=(16, 32),
            norm_num_groups=8,
            cross_attention_dim=16,
            attention_head_dim=4,
            layers_per_block=1,
        ),
    )
    yield (
        "diffusers DiTTransformer2DModel",
        make(
            "DiTTransformer2DModel",
            (1, 4, 16, 16),
            torch.tensor([3]),
            torch.tensor([1]),
            sample_size=16,
            num_attention_heads=2,
            attention_head_dim=8,
            num_layers=2,
            in_channels=4,
            num_embeds_ada_norm=10,
        ),
    )
