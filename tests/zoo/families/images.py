"""Classification of images: convolutional networks and transformers of three libraries, at small pictures."""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

from functools import partial
from typing import Any

from tests.export.network import Network
from tests.zoo.entry import entry, image

CNN, TRANSFORMER = "classification CNN", "classification transformer"

# Name in torchvision, side of the picture.
TORCHVISION = (
    ("googlenet", 64),
    ("mnasnet0_5", 96),
    ("squeezenet1_1", 96),
    ("shufflenet_v2_x0_5", 96),
    ("regnet_y_400mf", 64),
    ("resnet18", 96),
)
# Name in timm, side of the picture, arguments.
TIMM_CNN: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("ghostnet_050", 96, {}),
    ("repvit_m0_9", 96, {}),
    ("hrnet_w18_small", 64, {}),
    ("convnextv2_atto", 96, {"depths": (1, 1, 2, 1)}),
    ("dla46x_c", 96, {}),
    ("dpn48b", 64, {}),
    ("ecaresnet26t", 64, {}),
    ("edgenext_xx_small", 96, {}),
    ("efficientnet_lite0", 64, {}),
    ("tf_efficientnetv2_b0", 64, {}),
    ("efficientvit_b0", 96, {}),
    ("ese_vovnet19b_slim_dw", 96, {}),
    ("fasternet_t0", 96, {}),
    ("fastvit_t8", 96, {}),
    ("gernet_s", 64, {}),
    ("ghostnetv2_100", 64, {}),
    ("halonet26t", 256, {}),
    ("hardcorenas_a", 64, {}),
    ("hgnetv2_b0", 96, {}),
    ("inception_next_atto", 96, {}),
    ("lambda_resnet26t", 128, {}),
    ("lcnet_035", 96, {}),
    ("mambaout_femto", 96, {}),
    ("mixnet_s", 96, {}),
    ("mobilenetv4_conv_small_035", 96, {}),
    ("mobileone_s0", 64, {}),
    ("nf_regnet_b0", 64, {}),
    ("poolformer_s12", 96, {}),
    ("regnetx_002", 96, {}),
    ("repghostnet_050", 96, {}),
    ("repvgg_a0", 64, {}),
    ("res2net50_14w_8s", 64, {}),
    ("resnest14d", 96, {}),
    ("resnetv2_50x1_bit", 192, {}),
    ("rexnet_100", 64, {}),
    ("skresnet18", 64, {}),
    ("starnet_s050", 96, {}),
    ("tinynet_e", 96, {}),
)
TIMM_TRANSFORMER: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("levit_128s", 224, {}),
    ("pvt_v2_b0", 96, {}),
    ("beit_base_patch16_224", 64, {"img_size": 64, "depth": 2, "embed_dim": 96, "num_heads": 4}),
    ("botnet26t_256", 128, {"img_size": 128}),
    ("caformer_s18", 64, {}),
    ("cait_xxs24_224", 64, {"img_size": 64, "depth": 3}),
    ("coat_lite_tiny", 96, {"img_size": 96}),
    ("coatnet_pico_rw_224", 64, {"img_size": 64}),
    ("convit_tiny", 64, {"img_size": 64, "depth": 4, "local_up_to_layer": 2}),
    ("crossvit_tiny_240", 240, {}),
    ("davit_tiny", 64, {"depths": (1, 1, 1, 1), "embed_dims": (32, 64, 96, 128), "num_heads": (2, 4, 4, 8)}),
    ("deit_tiny_distilled_patch16_224", 64, {"img_size": 64, "depth": 3}),
    ("efficientformer_l1", 224, {}),
    ("efficientvit_m0", 224, {}),
    ("eva02_tiny_patch14_224", 70, {"img_size": 70, "depth": 3}),
    ("focalnet_tiny_srf", 64, {}),
    ("gcvit_xxtiny", 224, {}),
    ("gmlp_ti16_224", 64, {"img_size": 64}),
    ("hiera_tiny_224", 96, {"img_size": 96, "embed_dim": 48, "stages": (1, 1, 2, 1)}),
    ("maxvit_pico_rw_256", 64, {"img_size": 64}),
    ("mixer_s32_224", 96, {"img_size": 96}),
    ("mobilevit_xxs", 64, {}),
    ("mobilevitv2_050", 64, {}),
    ("mvitv2_tiny", 64, {"img_size": 64}),
    ("nest_tiny", 64, {"img_size": 64}),
    ("pit_ti_224", 96, {"img_size": 96}),
    ("resmlp_12_224", 64, {"img_size": 64}),
    ("sequencer2d_s", 64, {"img_size": 64, "layers": (1, 1, 1, 1), "embed_dims": (48, 96, 96, 96)}),
    ("shvit_s1", 96, {}),
    ("swiftformer_xs", 96, {}),
    (
        "swinv2_tiny_window8_256",
        64,
        {"img_size": 64, "depths": (1, 1, 2, 1), "embed_dim": 32, "num_heads": (2, 2, 4, 4)},
    ),
    ("tiny_vit_5m_224", 224, {"depths": (1, 1, 2, 1)}),
    ("tnt_s_patch16_224", 64, {"img_size": 64, "depth": 2, "embed_dim": 96}),
    ("twins_svt_small", 64, {"depths": (1, 1, 2, 1), "embed_dims": (32, 64, 96, 128)}),
    ("visformer_tiny", 96, {"img_size": 96}),
    ("vit_relpos_small_patch16_224", 64, {"img_size": 64, "depth": 2, "embed_dim": 96, "num_heads": 4}),
    ("volo_d1_224", 64, {"img_size": 64}),
    ("xcit_nano_12_p16_224", 64, {"img_size": 64, "depth": 3}),
)
PYTORCHCV = (
    ("resnet20_cifar10", 32),
    ("densenet40_k12_cifar10", 32),
    ("shufflenet_g1_wd4", 96),
    ("airnet50_1x64d_r16", 64),
    ("bagnet9", 64),
    ("bam_resnet18", 64),
    ("cbam_resnet18", 64),
    ("channelnet", 224),
    ("condensenet74_c8_g8", 96),
    ("darts", 64),
    ("diaresnet10", 64),
    ("diracnet18v2", 64),
    ("espnetv2_wd2", 96),
    ("fishnet99", 64),
    ("ibn_resnet50", 64),
    ("igcv3_wd4", 64),
    ("menet108_8x1_g3", 96),
    ("mobilenet_wd4", 96),
    ("nin_cifar10", 32),
    ("peleenet", 96),
    ("preresnet18_wd4", 96),
    ("proxylessnas_cpu", 64),
    ("resattnet56", 96),
    ("revnet38", 64),
    ("scnet50", 224),
    ("sepreresnet10", 64),
    ("selecsls42", 64),
    ("sparsenet121", 64),
    ("sqnxt23_w1", 96),
    ("xdensenet121_2", 64),
    ("resnext20_16x4d_cifar10", 32),
)


def networks() -> tuple[Network, ...]:
    """All of them."""
    return (
        *(entry(f"torchvision-{n}", CNN, partial(_torchvision, n), image(1, 3, s, s)) for n, s in TORCHVISION),
        *(entry(f"timm-{n}", CNN, partial(_timm, n, a), image(1, 3, s, s)) for n, s, a in TIMM_CNN),
        *(entry(f"timm-{n}", TRANSFORMER, partial(_timm, n, a), image(1, 3, s, s)) for n, s, a in TIMM_TRANSFORMER),
        *(entry(f"pytorchcv-{n}", CNN, partial(_pytorchcv, n), image(1, 3, s, s)) for n, s in PYTORCHCV),
    )


def _torchvision(name: str) -> Any:
    from torchvision import models

    arguments = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    return models.get_model(name, weights=None, num_classes=100, **arguments)


def _timm(name: str, arguments: dict[str, Any]) -> Any:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=100, **arguments)


def _pytorchcv(name: str) -> Any:
    from pytorchcv.model_provider import get_model
    from torch import nn

    model = get_model(name, pretrained=False)
    for part in model.modules():
        for name in dict(part.named_children()):
            if name == "final_pool":  # it is made for pictures of 224 alone
                setattr(part, name, nn.AdaptiveAvgPool2d(1))
    return model
