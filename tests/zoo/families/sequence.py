"""Speech, sound and other series: transformers, convolutions, recurrent and state-space networks."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from functools import partial
from typing import Any

from tests.export.network import Network
from tests.zoo.entry import entry, ids, image

SPEECH, RECURRENT, STATE, SERIES, SOUND = "speech", "recurrent", "state space", "time series", "sound"
_WAVE: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 32,
    "conv_dim": [24, 24, 24],
    "conv_stride": [5, 4, 4],
    "conv_kernel": [10, 8, 8],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "apply_spec_augment": False,
}
_SEQ: dict[str, Any] = {
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "vocab_size": 100,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
_MAMBA: dict[str, Any] = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "state_size": 8,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def networks() -> tuple[Network, ...]:
    """All of them."""
    wave = image(1, 3200, name="wave")
    words = ids(1, 24, high=200)
    return (
        entry("wav2vec2", SPEECH, partial(_wave, "Wav2Vec2", "Wav2Vec2ForCTC", {}), wave),
        entry(
            "wav2vec2-stable",
            SPEECH,
            partial(_wave, "Wav2Vec2", "Wav2Vec2Model", {"feat_extract_norm": "layer", "do_stable_layer_norm": True}),
            image(1, "samples", name="wave"),
            dims={"samples": 3200},
        ),
        entry("hubert", SPEECH, partial(_wave, "Hubert", "HubertModel", {}), wave),
        entry("wavlm", SPEECH, partial(_wave, "WavLM", "WavLMModel", {}), wave),
        entry("unispeech", SPEECH, partial(_wave, "UniSpeech", "UniSpeechModel", {}), wave),
        entry("sew", SPEECH, partial(_wave, "SEW", "SEWModel", {"squeeze_factor": 2}), wave),
        entry(
            "data2vec-audio",
            SPEECH,
            partial(_wave, "Data2VecAudio", "Data2VecAudioModel", {"conv_pos_kernel_size": 5}),
            wave,
        ),
        entry(
            "wav2vec2-conformer",
            SPEECH,
            partial(_wave, "Wav2Vec2Conformer", "Wav2Vec2ConformerModel", {"position_embeddings_type": "rotary"}),
            wave,
        ),
        entry("wav2vec2-bert", SPEECH, _wav2vec2_bert, image(1, 40, 32, name="features")),
        entry("whisper-encoder", SPEECH, partial(_whisper, True), image(1, 16, 64, name="mels")),
        entry(
            "whisper",
            SPEECH,
            partial(_whisper, False),
            image(1, 16, 64, name="mels"),
            ids(1, 8, name="decoder_input_ids", high=100),
        ),
        entry(
            "speech-to-text",
            SPEECH,
            _speech_to_text,
            image(1, 64, 16, name="features"),
            ids(1, 8, name="decoder_input_ids", high=100),
        ),
        entry("moonshine", SPEECH, _moonshine, wave, ids(1, 8, name="decoder_input_ids", high=100)),
        entry("speecht5", SPEECH, _speecht5, image(1, 20, 16, name="spectrogram")),
        entry("audio-spectrogram", SOUND, _spectrogram, image(1, 64, 32, name="spectrogram")),
        entry("clap-audio", SOUND, _clap, image(1, 1, 64, 64, name="spectrogram")),
        entry("parakeet", SPEECH, _parakeet, image(1, 64, 32, name="features")),
        entry("conformer", SPEECH, _conformer, image(1, "frames", 48, name="features"), dims={"frames": 40}),
        entry("vits", SPEECH, _vits, ids(1, 16, high=38)),
        entry("univnet", SOUND, _univnet, image(1, 12, 20, name="mels"), image(1, 12, 16, name="noise")),
        entry("encodec", SOUND, _encodec, image(1, 1, 1600, name="wave")),
        entry("dac", SOUND, _dac, image(1, 1, 1600, name="wave")),
        entry("mimi", SOUND, _mimi, image(1, 1, 1920, name="wave")),
        entry("conv-tasnet", SOUND, partial(_own, "ConvTasNet"), image(1, 1, 1600, name="wave")),
        entry("hifi-gan", SOUND, partial(_own, "HifiGan"), image(1, 40, "frames", name="mels"), dims={"frames": 16}),
        entry("deep-filter", SOUND, partial(_own, "DeepFilter"), image(1, 2, 24, 32, name="spectrum")),
        entry("crnn", RECURRENT, partial(_own, "Crnn"), image(1, 1, 32, 96, name="line")),
        entry("seq2seq-attention", RECURRENT, partial(_own, "Seq2Seq"), ids(1, 16, high=200)),
        entry("min-gru", RECURRENT, partial(_own, "LinearRecurrence"), image(1, 32, 32, name="features")),
        entry("rwkv", RECURRENT, _rwkv, words),
        entry("xlstm", RECURRENT, _xlstm, words),
        entry("recurrent-gemma", RECURRENT, _recurrent_gemma, words),
        entry("tcn", SERIES, partial(_own, "TemporalNet"), image(1, 8, "steps", name="series"), dims={"steps": 64}),
        entry("patchtst", SERIES, _patchtst, image(1, 64, 4, name="series")),
        entry("patchtsmixer", SERIES, _patchtsmixer, image(1, 64, 4, name="series")),
        entry("s4d", STATE, partial(_own, "StateSpace"), image(1, 64, 24, name="features")),
        entry("mamba", STATE, partial(_mamba, "Mamba", {}), words),
        entry("falcon-mamba", STATE, partial(_mamba, "FalconMamba", {}), words),
        entry(
            "mamba2",
            STATE,
            partial(_mamba, "Mamba2", {"num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8}),
            words,
        ),
        entry("jamba", STATE, _jamba, words),
        entry("mambapy", STATE, _mambapy, image(1, 16, 32, name="features")),
        entry("vim", STATE, _vim, image(1, 3, 32, 32)),
    )


def _own(name: str) -> Any:
    from tests.zoo import architectures

    return getattr(architectures, name)()


def _wave(config: str, kind: str, more: dict[str, Any]) -> Any:
    import transformers

    from tests.zoo.modules import Call

    settings = getattr(transformers, f"{config}Config")(**{**_WAVE, **more})
    field = "logits" if kind.endswith("CTC") else "last_hidden_state"
    return Call(getattr(transformers, kind)(settings), ("input_values",), pick=(field,))


def _wav2vec2_bert() -> Any:
    from transformers import Wav2Vec2BertConfig, Wav2Vec2BertModel

    from tests.zoo.modules import Call

    config = Wav2Vec2BertConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        feature_projection_input_dim=32,
        apply_spec_augment=False,
    )
    return Call(Wav2Vec2BertModel(config), ("input_features",), pick=("last_hidden_state",))


def _whisper(encoder: bool) -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    from tests.zoo.modules import Call

    config = WhisperConfig(**_SEQ, num_mel_bins=16, max_source_positions=32, max_target_positions=32)
    model = WhisperForConditionalGeneration(config)
    if encoder:
        return Call(model.model.encoder, ("input_features",), pick=("last_hidden_state",))
    return Call(model, ("input_features", "decoder_input_ids"), pick=("logits",))


def _speech_to_text() -> Any:
    from transformers import Speech2TextConfig, Speech2TextForConditionalGeneration

    from tests.zoo.modules import Call

    config = Speech2TextConfig(
        **_SEQ, input_feat_per_channel=16, conv_channels=32, max_source_positions=64, max_target_positions=32
    )
    return Call(Speech2TextForConditionalGeneration(config), ("input_features", "decoder_input_ids"), pick=("logits",))


def _moonshine() -> Any:
    from transformers import MoonshineConfig, MoonshineForConditionalGeneration

    from tests.zoo.modules import Call

    config = MoonshineConfig(
        vocab_size=100,
        hidden_size=48,
        intermediate_size=96,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return Call(MoonshineForConditionalGeneration(config), ("input_values", "decoder_input_ids"), pick=("logits",))


def _speecht5() -> Any:
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    from tests.zoo.modules import Call

    config = SpeechT5HifiGanConfig(model_in_dim=16, upsample_initial_channel=32)
    return Call(SpeechT5HifiGan(config))


def _spectrogram() -> Any:
    from transformers import ASTConfig, ASTForAudioClassification

    from tests.zoo.modules import Call

    config = ASTConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_length=64,
        num_mel_bins=32,
        patch_size=16,
        frequency_stride=8,
        time_stride=8,
    )
    return Call(ASTForAudioClassification(config), ("input_values",), pick=("logits",))


def _clap() -> Any:
    from transformers import ClapAudioConfig, ClapAudioModel

    from tests.zoo.modules import Call

    config = ClapAudioConfig(
        window_size=4,
        num_mel_bins=16,
        spec_size=64,
        patch_size=4,
        patch_stride=[4, 4],
        hidden_size=64,
        patch_embeds_hidden_size=16,
        depths=[1, 1, 1],
        num_attention_heads=[2, 2, 4],
        enable_fusion=False,
        num_hidden_layers=3,
    )
    return Call(ClapAudioModel(config), ("input_features",), pick=("last_hidden_state", "pooler_output"))


def _parakeet() -> Any:
    from transformers import ParakeetEncoder, ParakeetEncoderConfig

    from tests.zoo.modules import Call

    config = ParakeetEncoderConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        num_mel_bins=32,
        subsampling_conv_channels=16,
        max_position_embeddings=64,
    )
    return Call(ParakeetEncoder(config), ("input_features",), pick=("last_hidden_state",))


def _conformer() -> Any:
    from conformer import Conformer

    return Conformer(dim=48, depth=2, dim_head=16, heads=3, ff_mult=2, conv_expansion_factor=2, conv_kernel_size=15)


def _vits() -> Any:
    from transformers import VitsConfig, VitsModel
    from transformers.models.vits.modeling_vits import VitsTextEncoder

    from tests.zoo.modules import TextEncoderOfSpeech

    config = VitsConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=64, flow_size=32)
    assert VitsModel
    return TextEncoderOfSpeech(VitsTextEncoder(config))


def _univnet() -> Any:
    from transformers import UnivNetConfig, UnivNetModel

    from tests.zoo.modules import Call

    config = UnivNetConfig(
        model_in_channels=16, model_hidden_channels=8, num_mel_bins=20, kernel_predictor_hidden_channels=16
    )
    return Call(UnivNetModel(config), ("input_features", "noise_sequence"), pick=("waveforms",))


def _encodec() -> Any:
    from transformers import EncodecConfig, EncodecModel

    from tests.zoo.modules import AutoencoderOfSound

    config = EncodecConfig(
        num_filters=8, hidden_size=32, codebook_size=64, codebook_dim=32, upsampling_ratios=[4, 4, 2], num_lstm_layers=1
    )
    return AutoencoderOfSound(EncodecModel(config))


def _dac() -> Any:
    from transformers import DacConfig, DacModel

    from tests.zoo.modules import AutoencoderOfSound

    config = DacConfig(
        encoder_hidden_size=8,
        downsampling_ratios=[2, 4, 4],
        decoder_hidden_size=64,
        n_codebooks=2,
        codebook_size=64,
        codebook_dim=8,
    )
    return AutoencoderOfSound(DacModel(config))


def _mimi() -> Any:
    from transformers import MimiConfig, MimiModel

    from tests.zoo.modules import AutoencoderOfSound

    config = MimiConfig(
        hidden_size=32,
        num_filters=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_key_value_heads=2,
        codebook_size=64,
        codebook_dim=16,
        vector_quantization_hidden_dimension=16,
        num_quantizers=2,
        num_semantic_quantizers=1,
        use_cache=False,
    )
    return AutoencoderOfSound(MimiModel(config))


def _mamba(name: str, more: dict[str, Any]) -> Any:
    import transformers

    from tests.zoo.modules import Call

    config = getattr(transformers, f"{name}Config")(**{**_MAMBA, **more})
    return Call(
        getattr(transformers, f"{name}ForCausalLM")(config),
        ("input_ids",),
        pick=("logits",),
        fixed={"use_cache": False},
    )


def _jamba() -> Any:
    from transformers import JambaConfig, JambaForCausalLM

    from tests.zoo.modules import Call

    config = JambaConfig(
        vocab_size=200,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_experts=2,
        expert_layer_period=2,
        expert_layer_offset=1,
        attn_layer_period=2,
        attn_layer_offset=1,
        mamba_d_state=8,
        use_mamba_kernels=False,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return Call(JambaForCausalLM(config), ("input_ids",), pick=("logits",), fixed={"use_cache": False})


def _mambapy() -> Any:
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=32, n_layers=2, d_state=8, pscan=False))


def _vim() -> Any:
    from mambapy.mamba import Mamba, MambaConfig

    from tests.zoo.modules import Patches

    return Patches(Mamba(MambaConfig(d_model=32, n_layers=1, d_state=8, pscan=False)), width=32, patch=8)


def _rwkv() -> Any:
    from transformers import RwkvConfig, RwkvForCausalLM

    from tests.zoo.modules import Call

    config = RwkvConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2, context_length=32, use_cache=False)
    return Call(RwkvForCausalLM(config), ("input_ids",), pick=("logits",), fixed={"use_cache": False})


def _xlstm() -> Any:
    from transformers import xLSTMConfig, xLSTMForCausalLM

    from tests.zoo.modules import Call

    config = xLSTMConfig(
        vocab_size=200,
        hidden_size=32,
        num_blocks=2,
        num_hidden_layers=2,
        num_heads=2,
        chunk_size=8,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return Call(xLSTMForCausalLM(config), ("input_ids",), pick=("logits",))


def _recurrent_gemma() -> Any:
    from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

    from tests.zoo.modules import Call

    config = RecurrentGemmaConfig(
        vocab_size=200,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        lru_width=32,
        attention_window_size=8,
        use_cache=False,
    )
    return Call(RecurrentGemmaForCausalLM(config), ("input_ids",), pick=("logits",), fixed={"use_cache": False})


def _patchtst() -> Any:
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    from tests.zoo.modules import Call

    config = PatchTSTConfig(
        num_input_channels=4,
        context_length=64,
        patch_length=8,
        patch_stride=8,
        num_hidden_layers=2,
        d_model=32,
        num_attention_heads=4,
        ffn_dim=64,
        prediction_length=8,
        loss="mse",
    )
    return Call(PatchTSTForPrediction(config), ("past_values",), pick=("prediction_outputs",))


def _patchtsmixer() -> Any:
    from transformers import PatchTSMixerConfig, PatchTSMixerForPrediction

    from tests.zoo.modules import Call

    config = PatchTSMixerConfig(
        num_input_channels=4,
        context_length=64,
        patch_length=8,
        patch_stride=8,
        num_layers=2,
        d_model=16,
        prediction_length=8,
        loss="mse",
        mode="mix_channel",
    )
    return Call(PatchTSMixerForPrediction(config), ("past_values",), pick=("prediction_outputs",))
