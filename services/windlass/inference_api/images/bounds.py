"""Bounds of the images of one request, and of the tokens that they stand for."""

from collections.abc import Sequence

from windlass.inference_api.images.dimensions import Dimensions

# Together, before they are written in base64: engines take bodies of 32 MiB.
MAX_BYTES = 16 * 2**20
# Of one, and of all together: three bytes each where they are decompressed.
MAX_PIXELS = 2**25
MAX_PIXELS_TOGETHER = 2**26
# Of one whose size is not known yet, for the token limit alone.
ASSUMED_IMAGE_TOKENS = 1024
# Models that read an image in squares of a side of 28 have a token for each (Qwen2-VL); others
# have as many for each image (576 of LLaVA 1.5, 256 of Gemma 3).
_LIKELY_PIXELS, _LIKELY_LEAST, _LIKELY_MOST = 28 * 28, 256, 16_384
# The most of any: squares of a side of 14, after a small image was made larger.
_FEWEST_PIXELS, _MOST_OF_SMALL = 14 * 14, 8192


def likely_tokens(images: Sequence[Dimensions]) -> int:
    """The tokens that images may stand for in a prompt; never zero for one."""
    each = (one.pixels // _LIKELY_PIXELS for one in images)
    return sum(min(max(_LIKELY_LEAST, tokens), _LIKELY_MOST) for tokens in each)


def most_tokens(images: Sequence[Dimensions]) -> int:
    """The tokens that images stand for at most."""
    return sum(_MOST_OF_SMALL + one.pixels // _FEWEST_PIXELS for one in images)
