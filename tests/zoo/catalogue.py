"""All networks of the zoo, in one list."""

from __future__ import annotations

from tests.export.network import Network
from tests.zoo.families import dense, generative, images, sequence, text

FAMILIES = (images, dense, text, sequence, generative)


def networks() -> tuple[Network, ...]:
    """The networks of all families, in the order of their files."""
    found = tuple(network for family in FAMILIES for network in family.networks())
    names = [network.name for network in found]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"two networks of one name: {twice}"
    return found
