"""Pictures that are made, and words beside pictures: diffusion networks, autoencoders, multimodal networks."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from functools import partial
from typing import Any

from tests.export.network import Network
from tests.zoo.entry import entry, ids, image

UNET, DIFFUSION, AUTOENCODER, MULTIMODAL, VOLUME = (
    "diffusion U-Net",
    "diffusion transformer",
    "autoencoder",
    "multimodal",
    "volume and video",
)
_DOWN = ("DownBlock2D", "CrossAttnDownBlock2D")
_UP = ("CrossAttnUpBlock2D", "UpBlock2D")
_VIT: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
}
_TEXT: dict[str, Any] = {
    "vocab_size": 200,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def networks() -> tuple[Network, ...]:
    """All of them."""
    latent, step = image(1, 4, 16, 16, name="latent"), image(1, name="step")
    context = image(1, 8, 32, name="context")
    words = ids(1, 12, high=200)
    picture = image(1, 3, 32, 32)
    return (
        entry("unet2d", UNET, _unet2d, image(1, 3, 32, 32, name="sample"), step),
        entry("unet2d-ddpm", UNET, _ddpm, image(1, 3, 32, 32, name="sample"), step),
        entry("unet2d-condition", UNET, partial(_condition, {}), latent, step, context),
        entry(
            "unet2d-condition-free",
            UNET,
            partial(_condition, {}),
            image(1, 4, "height", "width", name="latent"),
            step,
            context,
            dims={"height": 16, "width": 24},
        ),
        entry(
            "unet2d-linear",
            UNET,
            partial(_condition, {"use_linear_projection": True, "transformer_layers_per_block": 2}),
            latent,
            step,
            context,
        ),
        entry("unet3d", VOLUME, _unet3d, image(1, 4, 2, 16, 16, name="latent"), step, context),
        entry("controlnet", UNET, _controlnet, latent, step, context, image(1, 3, 128, 128, name="hint")),
        entry("dit", DIFFUSION, _dit, latent, step, ids(1, name="label", high=10)),
        entry("pixart", DIFFUSION, _pixart, latent, context, step),
        entry("sd3", DIFFUSION, _sd3, latent, context, image(1, 32, name="pooled"), step),
        entry("flux", DIFFUSION, _flux, image(1, 16, 16, name="latent"), context, image(1, 32, name="pooled"), step),
        entry("sana", DIFFUSION, _sana, latent, context, step),
        entry("uvit", DIFFUSION, _simple_uvit, picture, image(1, name="step")),
        entry("vae-encoder", AUTOENCODER, partial(_vae, "encoder"), image(1, 3, 64, 64)),
        entry("vae-decoder", AUTOENCODER, partial(_vae, "decoder"), image(1, 4, 16, 16, name="latent")),
        entry("vae-tiny", AUTOENCODER, _tiny_vae, image(1, 3, "height", "width"), dims={"height": 64, "width": 64}),
        entry("vq-vae", AUTOENCODER, _vq, image(1, 3, 32, 32)),
        entry("dc-ae-decoder", AUTOENCODER, _deep_compression, image(1, 4, 8, 8, name="latent")),
        entry("stylegan2", "generator", partial(_own, "Gan"), image(1, 32, name="code")),
        entry("volume-unet", VOLUME, partial(_own, "VolumeNet"), image(1, 1, 16, 32, 32, name="volume")),
        entry("videomae", VOLUME, _videomae, image(1, 4, 3, 32, 32, name="frames")),
        entry("vivit", VOLUME, _vivit, image(1, 4, 3, 32, 32, name="frames")),
        entry("timesformer", VOLUME, _timesformer, image(1, 4, 3, 32, 32, name="frames")),
        entry("r3d", VOLUME, partial(_video, "r3d_18"), image(1, 3, 4, 32, 32, name="frames")),
        entry("r2plus1d", VOLUME, partial(_video, "r2plus1d_18"), image(1, 3, 4, 32, 32, name="frames")),
        entry("s3d", VOLUME, partial(_video, "s3d"), image(1, 3, 16, 224, 224, name="frames")),
        entry("clip", MULTIMODAL, partial(_pair, "CLIP"), words, picture),
        entry("siglip", MULTIMODAL, partial(_pair, "Siglip"), words, picture),
        entry("blip", MULTIMODAL, _blip, picture, words),
        entry("vilt", MULTIMODAL, _vilt, words, picture),
        entry("llava", MULTIMODAL, _llava, words, picture),
        entry("git", MULTIMODAL, _git, words, picture),
        entry("owlvit", MULTIMODAL, _owlvit, words, picture),
        entry("clipseg", MULTIMODAL, _clipseg, words, picture),
        entry("layoutlmv3", MULTIMODAL, _layout, words, ids(1, 12, 4, name="bbox", high=100), picture),
        entry("trocr", MULTIMODAL, _trocr, picture, ids(1, 8, name="decoder_input_ids", high=200)),
        entry("perceiver", MULTIMODAL, _perceiver, image(1, 24, 32, name="features")),
        entry("flava", MULTIMODAL, _flava, picture),
        entry("sam-encoder", MULTIMODAL, _sam, image(1, 3, 64, 64)),
        entry("bridgetower", MULTIMODAL, _bridgetower, words, picture),
        entry("mgp-str", MULTIMODAL, _mgp, image(1, 3, 32, 64)),
        entry("donut-swin", MULTIMODAL, _donut, image(1, 3, 64, 64)),
        entry(
            "vit-mae",
            MULTIMODAL,
            partial(
                _vision,
                "ViTMAE",
                {
                    "decoder_hidden_size": 32,
                    "decoder_num_hidden_layers": 1,
                    "decoder_num_attention_heads": 4,
                    "decoder_intermediate_size": 64,
                    "mask_ratio": 0.0,
                },
            ),
            picture,
        ),
        entry("x-transformer", "text decoder", _x_transformer, ids(1, 24, high=200)),
    )


def _own(name: str) -> Any:
    from tests.zoo import architectures

    return getattr(architectures, name)()


def _unet2d() -> Any:
    from diffusers import UNet2DModel

    from tests.zoo.modules import Call

    model = UNet2DModel(
        sample_size=32,
        block_out_channels=(16, 32, 32),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    )
    return Call(model, ("sample", "timestep"), pick=("sample",))


def _ddpm() -> Any:
    """The published network for images of 32 by 32 pixels (denoising diffusion, 2020)."""
    from diffusers import UNet2DModel

    from tests.zoo.modules import Call

    model = UNet2DModel(
        sample_size=32,
        block_out_channels=(128, 256, 256, 256),
        layers_per_block=2,
        attention_head_dim=None,
        downsample_padding=0,
        flip_sin_to_cos=False,
        freq_shift=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    )
    return Call(model, ("sample", "timestep"), pick=("sample",))


_CONDITION: dict[str, Any] = {
    "sample_size": 16,
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "attention_head_dim": 8,
    "cross_attention_dim": 32,
    "down_block_types": _DOWN,
}


def _condition(more: dict[str, Any]) -> Any:
    from diffusers import UNet2DConditionModel

    from tests.zoo.modules import Call

    model = UNet2DConditionModel(**{**_CONDITION, **more}, up_block_types=_UP)
    return Call(model, ("sample", "timestep", "encoder_hidden_states"), pick=("sample",))


def _controlnet() -> Any:
    from diffusers import ControlNetModel

    from tests.zoo.modules import Call

    arguments = {name: value for name, value in _CONDITION.items() if name != "sample_size"}
    model = ControlNetModel(**arguments, conditioning_embedding_out_channels=(8, 8, 16, 16))
    return Call(model, ("sample", "timestep", "encoder_hidden_states", "controlnet_cond"))


def _unet3d() -> Any:
    from diffusers import UNet3DConditionModel

    from tests.zoo.modules import Call

    model = UNet3DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=8,
        cross_attention_dim=32,
        down_block_types=("DownBlock3D", "CrossAttnDownBlock3D"),
        up_block_types=("CrossAttnUpBlock3D", "UpBlock3D"),
    )
    return Call(model, ("sample", "timestep", "encoder_hidden_states"), pick=("sample",))


def _dit() -> Any:
    from diffusers import DiTTransformer2DModel

    from tests.zoo.modules import Call

    model = DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        sample_size=16,
        patch_size=2,
        num_embeds_ada_norm=10,
        norm_num_groups=1,
    )
    return Call(model, ("hidden_states", "timestep", "class_labels"), pick=("sample",))


def _pixart() -> Any:
    from diffusers import PixArtTransformer2DModel

    from tests.zoo.modules import Call

    model = PixArtTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        sample_size=16,
        patch_size=2,
        cross_attention_dim=48,
        caption_channels=32,
        use_additional_conditions=False,
        norm_num_groups=1,
    )
    return Call(
        model,
        ("hidden_states", "encoder_hidden_states", "timestep"),
        pick=("sample",),
        fixed={"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    )


def _sd3() -> Any:
    from diffusers import SD3Transformer2DModel

    from tests.zoo.modules import Call

    model = SD3Transformer2DModel(
        sample_size=16,
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=12,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=48,
        pooled_projection_dim=32,
        out_channels=4,
        pos_embed_max_size=16,
    )
    return Call(model, ("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"), pick=("sample",))


def _flux() -> Any:
    import torch
    from diffusers import FluxTransformer2DModel

    from tests.zoo.modules import Call

    model = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
    places = torch.tensor([[0, index // 4, index % 4] for index in range(16)])
    fixed = {"img_ids": places, "txt_ids": torch.zeros(8, 3)}
    return Call(
        model,
        ("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"),
        pick=("sample",),
        fixed=fixed,
    )


def _sana() -> Any:
    from diffusers import SanaTransformer2DModel

    from tests.zoo.modules import Call

    model = SanaTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=4,
        attention_head_dim=12,
        num_layers=2,
        num_cross_attention_heads=4,
        cross_attention_head_dim=12,
        cross_attention_dim=48,
        caption_channels=32,
        sample_size=16,
        patch_size=1,
    )
    return Call(model, ("hidden_states", "encoder_hidden_states", "timestep"), pick=("sample",))


def _simple_uvit() -> Any:
    from vit_pytorch.simple_uvit import SimpleUViT

    from tests.zoo.modules import First

    return First(
        SimpleUViT(image_size=32, patch_size=8, num_classes=10, dim=32, depth=4, heads=2, mlp_dim=64, dim_head=16)
    )


def _vae(part: str) -> Any:
    from diffusers import AutoencoderKL

    from tests.zoo.modules import Call

    model = AutoencoderKL(
        block_out_channels=(16, 32, 32),
        norm_num_groups=8,
        layers_per_block=1,
        latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
    )
    return Call(getattr(model, part))


def _tiny_vae() -> Any:
    from diffusers import AutoencoderTiny

    from tests.zoo.modules import Call

    model = AutoencoderTiny(encoder_block_out_channels=(16, 16, 16, 16), decoder_block_out_channels=(16, 16, 16, 16))
    return Call(model, ("sample",), pick=("sample",))


def _vq() -> Any:
    from diffusers import VQModel

    from tests.zoo.modules import Call

    model = VQModel(
        block_out_channels=(16, 32),
        norm_num_groups=8,
        num_vq_embeddings=64,
        vq_embed_dim=8,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    return Call(model, ("sample",), pick=("sample",))


def _deep_compression() -> Any:
    from diffusers import AutoencoderDC

    from tests.zoo.modules import Call

    model = AutoencoderDC(
        latent_channels=4,
        attention_head_dim=8,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(16, 32),
        decoder_block_out_channels=(16, 32),
        encoder_layers_per_block=(1, 1),
        decoder_layers_per_block=(1, 1),
        encoder_qkv_multiscales=((), (5,)),
        decoder_qkv_multiscales=((), (5,)),
    )
    return Call(model.decoder)


def _video(name: str) -> Any:
    from torchvision import models

    return models.get_model(name, weights=None, num_classes=10)


def _frames(kind: str, more: dict[str, Any], pick: str) -> Any:
    import transformers

    from tests.zoo.modules import Call

    config = getattr(transformers, f"{kind}Config")(**{**_VIT, "num_frames": 4, **more})
    return Call(getattr(transformers, f"{kind}Model")(config), ("pixel_values",), pick=(pick,))


def _videomae() -> Any:
    return _frames("VideoMAE", {"tubelet_size": 2}, "last_hidden_state")


def _vivit() -> Any:
    return _frames("Vivit", {"tubelet_size": [2, 8, 8]}, "last_hidden_state")


def _timesformer() -> Any:
    return _frames("Timesformer", {}, "last_hidden_state")


def _vision(kind: str, more: dict[str, Any]) -> Any:
    import transformers

    from tests.zoo.modules import Call

    config = getattr(transformers, f"{kind}Config")(**{**_VIT, **more})
    return Call(getattr(transformers, f"{kind}Model")(config), ("pixel_values",), pick=("last_hidden_state",))


def _pair(kind: str) -> Any:
    import transformers

    from tests.zoo.modules import Call

    config = getattr(transformers, f"{kind}Config")(text_config=_TEXT, vision_config=_VIT, projection_dim=32)
    model = getattr(transformers, f"{kind}Model")(config)
    return Call(model, ("input_ids", "pixel_values"), pick=("logits_per_image", "text_embeds", "image_embeds"))


def _blip() -> Any:
    from transformers import BlipConfig, BlipForConditionalGeneration

    from tests.zoo.modules import Call

    config = BlipConfig(text_config={**_TEXT, "encoder_hidden_size": 48}, vision_config=_VIT, projection_dim=32)
    return Call(BlipForConditionalGeneration(config), ("pixel_values", "input_ids"), pick=("logits",))


def _vilt() -> Any:
    from transformers import ViltConfig, ViltModel

    from tests.zoo.modules import Call

    config = ViltConfig(**{**_TEXT, **_VIT}, max_image_length=16)
    return Call(ViltModel(config), ("input_ids", "pixel_values"), pick=("last_hidden_state",))


def _llava() -> Any:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaModel

    from tests.zoo.modules import Beside

    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**_VIT), text_config=LlamaConfig(**_TEXT), image_token_index=199
    )
    return Beside(LlavaModel(config))


def _git() -> Any:
    from transformers import GitConfig, GitForCausalLM

    from tests.zoo.modules import Call

    config = GitConfig(**_TEXT, vision_config=_VIT, use_cache=False)
    return Call(GitForCausalLM(config), ("input_ids", "pixel_values"), pick=("logits",), fixed={"use_cache": False})


def _owlvit() -> Any:
    from transformers import OwlViTConfig, OwlViTForObjectDetection

    from tests.zoo.modules import Call

    config = OwlViTConfig(text_config={**_TEXT, "max_position_embeddings": 16}, vision_config=_VIT, projection_dim=48)
    return Call(OwlViTForObjectDetection(config), ("input_ids", "pixel_values"), pick=("logits", "pred_boxes"))


def _clipseg() -> Any:
    from transformers import CLIPSegConfig, CLIPSegForImageSegmentation

    from tests.zoo.modules import Call

    config = CLIPSegConfig(
        text_config=_TEXT,
        vision_config=_VIT,
        projection_dim=32,
        extract_layers=[0, 1],
        reduce_dim=16,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=32,
    )
    return Call(CLIPSegForImageSegmentation(config), ("input_ids", "pixel_values"), pick=("logits",))


def _layout() -> Any:
    from transformers import LayoutLMv3Config, LayoutLMv3Model

    from tests.zoo.modules import Call

    config = LayoutLMv3Config(
        **_TEXT, coordinate_size=8, shape_size=8, input_size=32, patch_size=8, max_2d_position_embeddings=128
    )
    return Call(LayoutLMv3Model(config), ("input_ids", "bbox", "pixel_values"), pick=("last_hidden_state",))


def _trocr() -> Any:
    from transformers import TrOCRConfig, TrOCRForCausalLM, VisionEncoderDecoderModel, ViTConfig, ViTModel

    from tests.zoo.modules import Call

    encoder = ViTModel(ViTConfig(**_VIT), add_pooling_layer=False)
    decoder = TrOCRForCausalLM(
        TrOCRConfig(
            vocab_size=200,
            d_model=48,
            decoder_layers=2,
            decoder_attention_heads=4,
            decoder_ffn_dim=96,
            cross_attention_hidden_size=48,
            is_decoder=True,
            add_cross_attention=True,
            max_position_embeddings=32,
            use_cache=False,
        )
    )
    return Call(
        VisionEncoderDecoderModel(encoder=encoder, decoder=decoder),
        ("pixel_values", "decoder_input_ids"),
        pick=("logits",),
        fixed={"use_cache": False},
    )


def _perceiver() -> Any:
    from transformers import PerceiverConfig, PerceiverModel

    from tests.zoo.modules import Call

    config = PerceiverConfig(
        num_latents=8,
        d_latents=32,
        d_model=32,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=4,
        num_cross_attention_heads=4,
    )
    return Call(PerceiverModel(config), ("inputs",), pick=("last_hidden_state",))


def _flava() -> Any:
    from transformers import FlavaImageConfig, FlavaImageModel

    from tests.zoo.modules import Call

    return Call(FlavaImageModel(FlavaImageConfig(**_VIT)), ("pixel_values",), pick=("last_hidden_state",))


def _sam() -> Any:
    from transformers import SamVisionConfig, SamVisionModel

    from tests.zoo.modules import Call

    config = SamVisionConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        mlp_dim=96,
        image_size=64,
        patch_size=8,
        window_size=4,
        global_attn_indexes=[1],
        output_channels=16,
    )
    return Call(SamVisionModel(config), ("pixel_values",), pick=("last_hidden_state",))


def _bridgetower() -> Any:
    from transformers import BridgeTowerConfig, BridgeTowerModel

    from tests.zoo.modules import Call

    vision = {**_VIT, "share_layernorm": True, "hidden_size": 64}
    config = BridgeTowerConfig(
        hidden_size=48, num_attention_heads=4, num_hidden_layers=2, text_config=_TEXT, vision_config=vision
    )
    return Call(BridgeTowerModel(config), ("input_ids", "pixel_values"), pick=("text_features", "image_features"))


def _mgp() -> Any:
    from transformers import MgpstrConfig, MgpstrForSceneTextRecognition

    from tests.zoo.modules import Call

    config = MgpstrConfig(
        image_size=[32, 64],
        patch_size=8,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_token_length=8,
        num_bpe_labels=60,
        num_wordpiece_labels=70,
    )
    return Call(MgpstrForSceneTextRecognition(config), ("pixel_values",), pick=("logits",))


def _donut() -> Any:
    from transformers import DonutSwinConfig, DonutSwinModel

    from tests.zoo.modules import Call

    config = DonutSwinConfig(image_size=64, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
    return Call(DonutSwinModel(config), ("pixel_values",), pick=("last_hidden_state",))


def _x_transformer() -> Any:
    from x_transformers import Decoder, TransformerWrapper

    return TransformerWrapper(
        num_tokens=200,
        max_seq_len=64,
        attn_layers=Decoder(
            dim=48, depth=2, heads=4, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True, attn_qk_norm=True
        ),
    )
