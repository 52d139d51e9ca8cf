"""Text: encoders, decoders with and without a cache, encoder-decoders, of the transformers library."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from functools import partial
from typing import Any

from tests.export.network import Input, Network
from tests.zoo.entry import draw, entry, ids, image

ENCODER, DECODER, TRANSLATOR = "text encoder", "text decoder", "text encoder-decoder"
WORDS = 500
# What most configurations call these; the others say so in the table.
SMALL: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_key_value_heads": 2}
EXPERTS = {"num_key_value_heads": 2, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}

# What some configurations will not be told.
_REFUSED: dict[str, tuple[str, ...]] = {
    "FunnelModel": ("num_hidden_layers",),
    "ProphetNetModel": ("num_hidden_layers",),
    "XLNetModel": ("max_position_embeddings",),
}
# Name, class in transformers, what its configuration says beyond SMALL.
ENCODERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("bert", "BertModel", {}),
    ("albert", "AlbertModel", {"embedding_size": 32}),
    ("big-bird", "BigBirdModel", {"attention_type": "original_full"}),
    ("canine", "CanineModel", {"local_transformer_stride": 16, "num_hash_buckets": 64}),
    ("convbert", "ConvBertModel", {"embedding_size": 32}),
    ("deberta", "DebertaModel", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    (
        "deberta-v2",
        "DebertaV2Model",
        {
            "relative_attention": True,
            "position_buckets": 16,
            "pos_att_type": ["p2c", "c2p"],
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
        },
    ),
    ("distilbert", "DistilBertModel", {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}),
    ("electra", "ElectraForTokenClassification", {"embedding_size": 32}),
    ("ernie", "ErnieModel", {}),
    ("esm", "EsmModel", {"position_embedding_type": "rotary"}),
    ("fnet", "FNetModel", {}),
    ("funnel", "FunnelModel", {"d_model": 64, "block_sizes": [1, 1], "n_head": 4, "d_head": 16, "d_inner": 128}),
    ("ibert", "IBertModel", {}),
    ("longformer", "LongformerModel", {"attention_window": [8, 8]}),
    ("mobilebert", "MobileBertModel", {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32}),
    ("modernbert", "ModernBertModel", {"local_attention": 16, "global_attn_every_n_layers": 2}),
    ("mpnet", "MPNetModel", {}),
    ("mra", "MraModel", {}),
    (
        "nystromformer",
        "NystromformerModel",
        {"num_landmarks": 8, "segment_means_seq_len": 32, "max_position_embeddings": 30},
    ),
    ("rembert", "RemBertModel", {"input_embedding_size": 32}),
    ("roberta", "RobertaForSequenceClassification", {}),
    ("roc-bert", "RoCBertModel", {"enable_pronunciation": False, "enable_shape": False}),
    ("roformer", "RoFormerModel", {"embedding_size": 32}),
    ("squeezebert", "SqueezeBertModel", {"embedding_size": 64}),
    ("xlnet", "XLNetModel", {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128}),
    ("xmod", "XmodModel", {"languages": ["en"], "default_language": "en"}),
    ("yoso", "YosoModel", {"use_expectation": True}),
)
DECODERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("bloom", "BloomForCausalLM", {"n_layer": 2, "n_head": 4}),
    ("codegen", "CodeGenForCausalLM", {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8}),
    ("cohere", "CohereForCausalLM", GROUPED),
    ("ctrl", "CTRLLMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "dff": 128}),
    (
        "deepseek-v2",
        "DeepseekV2ForCausalLM",
        {
            "kv_lora_rank": 16,
            "q_lora_rank": 24,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
    ("falcon", "FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("gemma", "GemmaForCausalLM", {"num_key_value_heads": 1, "head_dim": 16}),
    ("gemma2", "Gemma2ForCausalLM", {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8}),
    ("gemma3", "Gemma3ForCausalLM", {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8}),
    ("glm", "GlmForCausalLM", {"num_key_value_heads": 2, "head_dim": 16}),
    ("gpt-bigcode", "GPTBigCodeForCausalLM", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    (
        "gpt-neo",
        "GPTNeoForCausalLM",
        {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 8, "num_heads": 4},
    ),
    ("gpt-neox", "GPTNeoXForCausalLM", {}),
    (
        "gpt-oss",
        "GptOssForCausalLM",
        {
            "num_key_value_heads": 2,
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 8,
        },
    ),
    ("gptj", "GPTJForCausalLM", {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8}),
    ("granite", "GraniteForCausalLM", GROUPED),
    ("mistral", "MistralForCausalLM", {"num_key_value_heads": 2, "sliding_window": 8}),
    ("mixtral", "MixtralForCausalLM", {"num_key_value_heads": 2, "num_local_experts": 4}),
    ("mpt", "MptForCausalLM", {"d_model": 64, "n_heads": 4, "n_layers": 2}),
    ("nemotron", "NemotronForCausalLM", GROUPED),
    ("olmo2", "Olmo2ForCausalLM", GROUPED),
    ("olmoe", "OlmoeForCausalLM", EXPERTS),
    ("opt", "OPTForCausalLM", {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    ("persimmon", "PersimmonForCausalLM", {}),
    ("phi", "PhiForCausalLM", {}),
    ("phi3", "Phi3ForCausalLM", GROUPED),
    ("qwen2", "Qwen2ForCausalLM", GROUPED),
    ("qwen3", "Qwen3ForCausalLM", {"num_key_value_heads": 2, "head_dim": 16}),
    ("qwen3-moe", "Qwen3MoeForCausalLM", {**EXPERTS, "head_dim": 16}),
    ("smollm3", "SmolLM3ForCausalLM", GROUPED),
    ("stablelm", "StableLmForCausalLM", GROUPED),
    ("starcoder2", "Starcoder2ForCausalLM", GROUPED),
    ("xglm", "XGLMForCausalLM", {"d_model": 64, "ffn_dim": 128, "num_layers": 2, "attention_heads": 4}),
)
# With keys and values of earlier tokens as inputs and outputs: width of a head, heads of keys and values.
CACHED = (("qwen2", 16, 2), ("gemma", 16, 1), ("phi3", 16, 2), ("gpt-neox", 16, 4), ("opt", 16, 4), ("mixtral", 16, 2))
TRANSLATORS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("bart", "BartModel", {"encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "scale_embedding": True}),
    ("blenderbot", "BlenderbotModel", {"encoder_ffn_dim": 128, "decoder_ffn_dim": 128}),
    ("led", "LEDModel", {"encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "attention_window": 8}),
    ("longt5", "LongT5Model", {"d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "local_radius": 7}),
    ("m2m100", "M2M100Model", {"encoder_ffn_dim": 128, "decoder_ffn_dim": 128}),
    ("marian", "MarianModel", {"encoder_ffn_dim": 128, "decoder_ffn_dim": 128}),
    ("mbart", "MBartModel", {"encoder_ffn_dim": 128, "decoder_ffn_dim": 128}),
    ("mt5", "MT5Model", {"d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}),
    ("pegasus", "PegasusModel", {"encoder_ffn_dim": 128, "decoder_ffn_dim": 128}),
    (
        "prophetnet",
        "ProphetNetModel",
        {
            "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
        },
    ),
    (
        "switch",
        "SwitchTransformersModel",
        {
            "d_kv": 16,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "num_experts": 2,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
        },
    ),
)
_BOTH = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "decoder_start_token_id": 2,
}


def networks() -> tuple[Network, ...]:
    """All of them; every third has a free number of tokens."""
    return (
        *(_tokens(name, ENCODER, partial(_encoder, kind, more)) for name, kind, more in ENCODERS),
        *(_tokens(name, DECODER, partial(_decoder, kind, more)) for name, kind, more in DECODERS),
        *(_with_past(name, width, heads) for name, width, heads in CACHED),
        *(
            entry(
                name, TRANSLATOR, partial(_translator, kind, more), _ids(1, 32), _ids(1, 12, name="decoder_input_ids")
            )
            for name, kind, more in TRANSLATORS
        ),
    )


def _ids(*shape: int | str, name: str = "input_ids") -> Input:
    return ids(*shape, name=name, high=WORDS)


def _tokens(name: str, family: str, build: Any) -> Network:
    if draw(f"free {name}", 3) == 0:
        return entry(name, family, build, _ids(1, "tokens"), dims={"tokens": 48})
    return entry(name, family, build, _ids(1, 32))


def _with_past(name: str, width: int, heads: int) -> Network:
    kind, more = next((kind, more) for known, kind, more in DECODERS if known == name)
    past = [
        image(1, heads, "past", width, name=f"past_{part}_{layer}") for layer in range(2) for part in ("key", "value")
    ]
    return entry(f"{name}-past", DECODER, partial(_cached, kind, more), _ids(1, 1), *past, dims={"past": 31})


def _configured(kind: Any, more: dict[str, Any]) -> Any:
    """A configuration with those of the common fields that it knows, and all of its own."""
    refused = _REFUSED.get(kind.__name__, ())
    config = kind.config_class(**{name: value for name, value in {**SMALL, **more}.items() if name not in refused})
    config.use_cache = False
    config._experts_implementation = "batched_mm"  # the other ones depend on which expert a token meets
    return config


def _encoder(name: str, more: dict[str, Any]) -> Any:
    import transformers

    from tests.zoo.modules import Call

    kind = getattr(transformers, name)
    return Call(kind(_configured(kind, more)), ("input_ids",))


def _decoder(name: str, more: dict[str, Any]) -> Any:
    import transformers

    from tests.zoo.modules import Call

    kind = getattr(transformers, name)
    return Call(
        kind(_configured(kind, more)), ("input_ids",), pick=("logits",), fixed={"use_cache": False}, masked=True
    )


def _cached(name: str, more: dict[str, Any]) -> Any:
    import transformers

    from tests.zoo.modules import Cached

    kind = getattr(transformers, name)
    return Cached(kind(_configured(kind, {**more, "sliding_window": None})))


def _translator(name: str, more: dict[str, Any]) -> Any:
    import transformers

    from tests.zoo.modules import Call

    kind = getattr(transformers, name)
    config = _configured(kind, {**_BOTH, **more})
    return Call(
        kind(config), ("input_ids", "decoder_input_ids"), pick=("last_hidden_state",), fixed={"use_cache": False}
    )
