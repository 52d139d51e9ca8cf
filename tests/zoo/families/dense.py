"""Networks whose output is a picture or a set of places: detection, segmentation, restoration, depth, pose."""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

from functools import partial
from typing import Any

from tests.export.network import Network
from tests.zoo.entry import entry, image

DETECTION, SEGMENTATION, POSE = "detection", "segmentation", "pose"
RESOLUTION, DEPTH = "super-resolution", "depth"

# Name in pytorchcv, family, height and width, arguments.
PYTORCHCV: tuple[tuple[str, str, int, int, dict[str, Any]], ...] = (
    ("bisenet_resnet18_celebamaskhq", SEGMENTATION, 64, 64, {}),
    ("cgnet_cityscapes", SEGMENTATION, 64, 128, {}),
    ("danet_resnetd50b_cityscapes", SEGMENTATION, 64, 64, {}),
    ("dabnet_cityscapes", SEGMENTATION, 64, 128, {}),
    ("edanet_cityscapes", SEGMENTATION, 64, 128, {}),
    ("erfnet_cityscapes", SEGMENTATION, 64, 64, {}),
    ("espcnet_cityscapes", SEGMENTATION, 64, 128, {}),
    ("fastscnn_cityscapes", SEGMENTATION, 128, 128, {}),
    ("fpenet_cityscapes", SEGMENTATION, 64, 128, {}),
    ("icnet_resnetd50b_cityscapes", SEGMENTATION, 96, 96, {}),
    ("lednet_cityscapes", SEGMENTATION, 64, 128, {}),
    ("linknet_cityscapes", SEGMENTATION, 64, 64, {}),
    ("segnet_cityscapes", SEGMENTATION, 32, 32, {}),
    ("sinet_cityscapes", SEGMENTATION, 128, 256, {}),
    ("unet_cityscapes", SEGMENTATION, 64, 64, {}),
    ("fcn8sd_resnetd50b_voc", SEGMENTATION, 64, 64, {}),
    ("pspnet_resnetd50b_voc", SEGMENTATION, 64, 64, {}),
    ("simplepose_mobile_resnet18_coco", POSE, 96, 64, {}),
    ("alphapose_fastseresnet101b_coco", POSE, 64, 64, {}),
    ("lwopenpose2d_mobilenet_cmupan_coco", POSE, 64, 64, {}),
    ("ibppose_coco", POSE, 64, 64, {}),
    ("centernet_resnet18_coco", DETECTION, 64, 64, {}),
)
# Name in torchvision, family, side.
TORCHVISION: tuple[tuple[str, str, int], ...] = (
    ("lraspp_mobilenet_v3_large", SEGMENTATION, 64),
    ("deeplabv3_mobilenet_v3_large", SEGMENTATION, 64),
    ("ssdlite320_mobilenet_v3_large", DETECTION, 320),
    ("retinanet_resnet50_fpn", DETECTION, 64),
    ("fcos_resnet50_fpn", DETECTION, 64),
)


def networks() -> tuple[Network, ...]:
    """All of them."""
    picture = image(1, 3, 64, 64)
    free = image(1, 3, "height", "width")
    return (
        *(
            entry(f"pytorchcv-{n}", f, partial(_pytorchcv, n, h, w, a), image(1, 3, h, w))
            for n, f, h, w, a in PYTORCHCV
        ),
        *(entry(f"torchvision-{n}", f, partial(_torchvision, n), image(1, 3, s, s)) for n, f, s in TORCHVISION),
        entry("detr", DETECTION, _detr, picture),
        entry("conditional-detr", DETECTION, _conditional_detr, picture),
        entry("deformable-detr", DETECTION, _deformable_detr, picture),
        entry("yolos", DETECTION, _yolos, picture),
        entry("rt-detr", DETECTION, _rt_detr, picture),
        entry("d-fine", DETECTION, _d_fine, picture),
        entry("segformer", SEGMENTATION, _segformer, free, dims={"height": 64, "width": 96}),
        entry("upernet-swin", SEGMENTATION, _upernet, picture),
        entry("maskformer-swin", SEGMENTATION, _maskformer, picture),
        entry("mask2former-swin", SEGMENTATION, _mask2former, picture),
        entry("mobilevit-deeplab", SEGMENTATION, _mobilevit_deeplab, picture),
        entry("beit-upernet", SEGMENTATION, _beit_segmentation, picture),
        entry("dpt", DEPTH, _dpt, picture),
        entry("glpn", DEPTH, _glpn, free, dims={"height": 64, "width": 96}),
        entry("depth-anything", DEPTH, _depth_anything, image(1, 3, 70, 70)),
        entry("zoedepth", DEPTH, _zoedepth, picture),
        entry("swin2sr", RESOLUTION, _swin2sr, image(1, 3, 32, 32)),
        entry("vitmatte", SEGMENTATION, _vitmatte, image(1, 4, 64, 64)),
        entry("vitpose", POSE, _vitpose, image(1, 3, 64, 48)),
        entry("superpoint", POSE, _superpoint, image(1, 3, 64, 64)),
        entry("edsr", RESOLUTION, _edsr, free, dims={"height": 32, "width": 40}),
        entry("rrdb", RESOLUTION, _rrdb, image(1, 3, 32, 32)),
        entry("dncnn", "denoising", _dncnn, image(1, 1, "height", "width"), dims={"height": 64, "width": 48}),
        entry("nafnet", "denoising", _nafnet, picture),
        entry("restormer", "denoising", _restormer, image(1, 3, 32, 32)),
    )


def _pytorchcv(name: str, height: int, width: int, arguments: dict[str, Any]) -> Any:
    from pytorchcv.model_provider import get_model

    from tests.zoo.modules import Call

    return Call(get_model(name, pretrained=False, in_size=(height, width), **arguments))


def _torchvision(name: str) -> Any:
    from torchvision import models

    from tests.zoo.modules import Call, Images

    detection = name.split("_")[0] in ("ssdlite320", "retinanet", "fcos")
    sizes = {"min_size": 64, "max_size": 64} if name.split("_")[0] in ("retinanet", "fcos") else {}
    model = models.get_model(name, weights=None, weights_backbone=None, num_classes=10, **sizes)
    return Images(model) if detection else Call(model)


_BACKBONE: dict[str, Any] = {
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 48, 64],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
_SWIN: dict[str, Any] = {
    "image_size": 64,
    "embed_dim": 16,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 2, 2, 4],
    "window_size": 4,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}
_VIT: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96}
_DETR: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_queries": 10,
    "use_timm_backbone": False,
    "backbone": None,
    "use_pretrained_backbone": False,
}


def _resnet(**further: Any) -> Any:
    from transformers import ResNetConfig

    return ResNetConfig(**_BACKBONE, **further)


def _swin_config() -> Any:
    from transformers import SwinConfig

    return SwinConfig(**_SWIN)


def _detr() -> Any:
    from transformers import DetrConfig, DetrForObjectDetection

    from tests.zoo.modules import Call

    config = DetrConfig(**_DETR, backbone_config=_resnet(out_features=["stage4"]))
    return Call(DetrForObjectDetection(config), ("pixel_values",), pick=("logits", "pred_boxes"))


def _conditional_detr() -> Any:
    from transformers import ConditionalDetrConfig, ConditionalDetrForObjectDetection

    from tests.zoo.modules import Call

    config = ConditionalDetrConfig(**_DETR, backbone_config=_resnet(out_features=["stage4"]))
    return Call(ConditionalDetrForObjectDetection(config), ("pixel_values",), pick=("logits", "pred_boxes"))


def _deformable_detr() -> Any:
    from transformers import DeformableDetrConfig, DeformableDetrForObjectDetection

    from tests.zoo.modules import Call

    backbone = _resnet(out_features=["stage2", "stage3", "stage4"])
    config = DeformableDetrConfig(**_DETR, backbone_config=backbone)
    return Call(DeformableDetrForObjectDetection(config), ("pixel_values",), pick=("logits", "pred_boxes"))


def _yolos() -> Any:
    from transformers import YolosConfig, YolosForObjectDetection

    from tests.zoo.modules import Call

    config = YolosConfig(**_VIT, image_size=[64, 64], num_detection_tokens=10, patch_size=16)
    return Call(YolosForObjectDetection(config), ("pixel_values",), pick=("logits", "pred_boxes"))


def _rt_detr_arguments() -> dict[str, Any]:
    return {
        "d_model": 32,
        "encoder_hidden_dim": 32,
        "encoder_in_channels": [32, 48, 64],
        "encoder_ffn_dim": 64,
        "encoder_attention_heads": 4,
        "decoder_in_channels": [32, 32, 32],
        "decoder_ffn_dim": 64,
        "decoder_attention_heads": 4,
        "decoder_layers": 2,
        "num_queries": 10,
        "num_denoising": 0,
        "num_labels": 8,
        "hidden_expansion": 0.5,
    }


def _rt_detr() -> Any:
    from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig

    from tests.zoo.modules import Call

    backbone = RTDetrResNetConfig(**_BACKBONE, out_features=["stage2", "stage3", "stage4"])
    config = RTDetrConfig(**_rt_detr_arguments(), backbone_config=backbone)
    return Call(RTDetrForObjectDetection(config), ("pixel_values",), pick=("logits", "pred_boxes"))


def _d_fine() -> Any:
    from transformers import DFineConfig, DFineForObjectDetection, HGNetV2Config

    from tests.zoo.modules import Call

    backbone = HGNetV2Config(
        stem_channels=[3, 8, 16],
        stage_in_channels=[16, 16, 32, 48],
        stage_mid_channels=[8, 8, 16, 16],
        stage_out_channels=[16, 32, 48, 64],
        stage_num_blocks=[1, 1, 1, 1],
        stage_numb_of_layers=[2, 2, 2, 2],
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        out_features=["stage2", "stage3", "stage4"],
    )
    config = DFineConfig(**_rt_detr_arguments(), backbone_config=backbone, feat_strides=[8, 16, 32])
    return Call(DFineForObjectDetection(config), ("pixel_values",), pick=("logits", "pred_boxes"))


def _segformer() -> Any:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    from tests.zoo.modules import Call

    config = SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64], decoder_hidden_size=32, num_labels=10)
    return Call(SegformerForSemanticSegmentation(config), ("pixel_values",))


def _upernet() -> Any:
    from transformers import UperNetConfig, UperNetForSemanticSegmentation

    from tests.zoo.modules import Call

    config = UperNetConfig(backbone_config=_swin_config(), hidden_size=32, num_labels=10, use_auxiliary_head=False)
    return Call(UperNetForSemanticSegmentation(config), ("pixel_values",))


def _maskformer() -> Any:
    from transformers import DetrConfig, MaskFormerConfig, MaskFormerForInstanceSegmentation

    from tests.zoo.modules import Call

    config = MaskFormerConfig(
        backbone_config=_swin_config(),
        decoder_config=DetrConfig(**_DETR, backbone_config=_resnet()),
        fpn_feature_size=32,
        mask_feature_size=32,
    )
    return Call(
        MaskFormerForInstanceSegmentation(config),
        ("pixel_values",),
        pick=("class_queries_logits", "masks_queries_logits"),
    )


def _mask2former() -> Any:
    from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation

    from tests.zoo.modules import Call

    config = Mask2FormerConfig(
        backbone_config=_swin_config(),
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=64,
        encoder_layers=1,
        decoder_layers=2,
        dim_feedforward=64,
        num_attention_heads=4,
        num_queries=10,
    )
    return Call(
        Mask2FormerForUniversalSegmentation(config),
        ("pixel_values",),
        pick=("class_queries_logits", "masks_queries_logits"),
    )


def _mobilevit_deeplab() -> Any:
    from transformers import MobileViTConfig, MobileViTForSemanticSegmentation

    from tests.zoo.modules import Call

    config = MobileViTConfig(
        image_size=64,
        hidden_sizes=[32, 40, 48],
        neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 96],
        aspp_out_channels=32,
        num_labels=10,
    )
    return Call(MobileViTForSemanticSegmentation(config), ("pixel_values",))


def _beit_segmentation() -> Any:
    from transformers import BeitConfig, BeitForSemanticSegmentation

    from tests.zoo.modules import Call

    config = BeitConfig(
        **_VIT,
        image_size=64,
        patch_size=16,
        out_indices=[1, 2, 3, 4],
        num_labels=10,
        use_auxiliary_head=False,
        use_relative_position_bias=True,
    )
    return Call(BeitForSemanticSegmentation(config), ("pixel_values",))


def _dpt() -> Any:
    from transformers import DPTConfig, DPTForDepthEstimation

    from tests.zoo.modules import Call

    config = DPTConfig(
        **_VIT,
        image_size=64,
        patch_size=16,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[16, 24, 32, 48],
        fusion_hidden_size=24,
    )
    return Call(DPTForDepthEstimation(config), ("pixel_values",))


def _glpn() -> Any:
    from transformers import GLPNConfig, GLPNForDepthEstimation

    from tests.zoo.modules import Call

    config = GLPNConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 80, 64], decoder_hidden_size=32)
    return Call(GLPNForDepthEstimation(config), ("pixel_values",))


def _dinov2() -> Any:
    from transformers import Dinov2Config

    return Dinov2Config(
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=70,
        patch_size=14,
        out_features=["stage1", "stage2", "stage3", "stage4"],
        reshape_hidden_states=False,
    )


def _depth_anything() -> Any:
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation

    from tests.zoo.modules import Call

    config = DepthAnythingConfig(
        backbone_config=_dinov2(),
        patch_size=14,
        reassemble_hidden_size=48,
        neck_hidden_sizes=[16, 24, 32, 48],
        fusion_hidden_size=24,
        head_hidden_size=16,
    )
    return Call(DepthAnythingForDepthEstimation(config), ("pixel_values",))


def _zoedepth() -> Any:
    from transformers import BeitConfig, ZoeDepthConfig, ZoeDepthForDepthEstimation

    from tests.zoo.modules import Call

    backbone = BeitConfig(
        **_VIT,
        image_size=64,
        patch_size=16,
        reshape_hidden_states=False,
        out_features=["stage1", "stage2", "stage3", "stage4"],
        use_relative_position_bias=True,
    )
    config = ZoeDepthConfig(
        backbone_config=backbone,
        neck_hidden_sizes=[16, 24, 32, 48],
        fusion_hidden_size=24,
        bottleneck_features=24,
        num_relative_features=16,
        bin_embedding_dim=32,
        backbone_hidden_size=48,
        num_attractors=[8, 4, 4, 2],
    )
    return Call(ZoeDepthForDepthEstimation(config), ("pixel_values",), pick=("predicted_depth",))


def _swin2sr() -> Any:
    from transformers import Swin2SRConfig, Swin2SRForImageSuperResolution

    from tests.zoo.modules import Call

    config = Swin2SRConfig(image_size=32, embed_dim=24, depths=[2, 2], num_heads=[2, 2], window_size=8, upscale=2)
    return Call(Swin2SRForImageSuperResolution(config), ("pixel_values",))


def _vitmatte() -> Any:
    from transformers import VitDetConfig, VitMatteConfig, VitMatteForImageMatting

    from tests.zoo.modules import Call

    backbone = VitDetConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_channels=4,
        image_size=64,
        pretrain_image_size=64,
        patch_size=16,
        out_features=["stage2"],
        use_relative_position_embeddings=True,
        window_block_indices=[0],
        window_size=2,
    )
    config = VitMatteConfig(
        backbone_config=backbone,
        hidden_size=48,
        convstream_hidden_sizes=[8, 16, 24],
        fusion_hidden_sizes=[32, 24, 16, 8],
    )
    return Call(VitMatteForImageMatting(config), ("pixel_values",))


def _vitpose() -> Any:
    from transformers import VitPoseBackboneConfig, VitPoseConfig, VitPoseForPoseEstimation

    from tests.zoo.modules import Call

    backbone = VitPoseBackboneConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=[64, 48],
        patch_size=[16, 16],
        out_indices=[2],
    )
    config = VitPoseConfig(backbone_config=backbone, num_labels=17, use_simple_decoder=False)
    return Call(VitPoseForPoseEstimation(config), ("pixel_values",))


def _superpoint() -> Any:
    from tests.zoo.architectures import PointNet

    return PointNet()


def _edsr() -> Any:
    from tests.zoo.architectures import Edsr

    return Edsr()


def _rrdb() -> Any:
    from tests.zoo.architectures import ResidualDense

    return ResidualDense()


def _dncnn() -> Any:
    from tests.zoo.architectures import denoiser

    return denoiser()


def _nafnet() -> Any:
    from tests.zoo.architectures import NafNet

    return NafNet()


def _restormer() -> Any:
    from tests.zoo.architectures import Restormer

    return Restormer()
