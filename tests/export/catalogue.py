"""All networks that are exported, in one list."""

from __future__ import annotations

from tests.export import (
    audio,
    cnn,
    convnext,
    decoder,
    detection,
    encoder,
    gated_cnn,
    image_to_image,
    llama,
    quantised,
    recurrent,
    translation,
    vision_transformer,
)
from tests.export.network import Network

FAMILIES = (
    cnn,
    gated_cnn,
    convnext,
    detection,
    image_to_image,
    audio,
    vision_transformer,
    encoder,
    decoder,
    llama,
    translation,
    recurrent,
    quantised,
)


def networks() -> tuple[Network, ...]:
    """The networks of all families, in the order of their files."""
    return tuple(network for family in FAMILIES for network in family.networks())
