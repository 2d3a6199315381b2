"""Parts of messages that are images, in OpenAI's form."""

import re
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from windlass.core import misfits
from windlass.inference_api.errors import bad_value, unknown_parameter, unsupported

KIND = "image_url"
# Of a request.
MAX_IMAGES = 16
MAX_LOOKED_AT = 50_000
# Of one that is fetched: signed ones are long.
IMAGE_URL_LENGTH = 8192
MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_HTTPS = "https://"
_DATA = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,")
# Long enough for the beginning of any.
_DATA_HEAD = 64
T = TypeVar("T")


class ImageUrl(Struct, forbid_unknown_fields=True):
    """`detail` has no effect: models here read an image in one way."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(Struct, tag_field="type", tag=KIND, forbid_unknown_fields=True):
    """An image by its URL, `https:` or `data:`."""

    image_url: ImageUrl


class ImagePlace(NamedTuple):
    """Place of an image in a request, and the bytes of the body that its URL takes."""

    message: int
    part: int
    url_bytes: int

    def __str__(self) -> str:
        return f"messages[{self.message}].content[{self.part}]"

    @property
    def url(self) -> str:
        """Name of the field that is the image's URL."""
        return f"{self}.{KIND}.url"


class _Content(Struct):
    content: msgspec.Raw = msgspec.Raw(b"")


class _RawPart(Struct):
    type: Any = None
    image_url: msgspec.Raw = msgspec.Raw(b"")


# They end at the first that is no object, since the loop waits for them.
_contents = msgspec.json.Decoder(list[_Content])
_parts = msgspec.json.Decoder(list[_RawPart])


def image_places(messages: bytes) -> tuple[ImagePlace, ...]:
    """The images of a chat's `messages` in JSON, in order; of what is no list of parts, none.

    Raises ApiError for more messages or parts than are looked at.
    """
    # The word may be written with escapes as well, but not otherwise.
    if KIND.encode() not in messages and b"\\u" not in messages:
        return ()
    found, left = [], MAX_LOOKED_AT
    for at, message in enumerate(_read(_contents, messages)):
        parts = _read(_parts, message.content)
        left -= 1 + len(parts)
        if left < 0:
            what = f"messages and their parts are more than {MAX_LOOKED_AT:,}, with images"
            raise bad_value(what, "messages")
        for place, part in enumerate(parts):
            if part.type == KIND:
                found.append(ImagePlace(at, place, len(part.image_url)))
    return tuple(found)


def _read(decoder: msgspec.json.Decoder[list[T]], raw: bytes | msgspec.Raw) -> list[T]:
    """Returns what is listed; nothing of what is something else, which the check refuses."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def check_image(part: dict[str, Any], where: str, role: str) -> None:
    """Refuses what is no image of a user, at a place of the request; raises ApiError."""
    if role != "user":
        raise unsupported(f"{where}.type", "images are for messages of role 'user'")
    try:
        image = msgspec.convert(part, ImagePart).image_url
    except msgspec.ValidationError as error:
        place, what = misfits.place(error, at=where, of=ImagePart)
        if what == "unknown field":
            raise unknown_parameter(place[:256]) from error
        raise bad_value(f"Invalid value for '{place}': {misfits.words(what)}.", place) from error
    url = f"{where}.{KIND}.url"
    if image.url[:_DATA_HEAD].lower().startswith("data:"):
        media_type(image.url, url)
    elif not image.url.startswith(_HTTPS):
        raise bad_value(f"{url} must begin with https:// or data:", url)
    elif len(image.url) > IMAGE_URL_LENGTH:
        raise bad_value(f"{url} has at most {IMAGE_URL_LENGTH} characters", url)


def media_type(url: str, where: str) -> str:
    """Media type that a `data:` URL names; raises ApiError for other than images in base64."""
    found = _DATA.match(url[:_DATA_HEAD])
    if found is None:
        raise bad_value(f"{where} must be of the form data:image/png;base64,…", where)
    # A name that many use and nobody registered.
    told = found[1].replace("image/jpg", "image/jpeg")
    if told not in MEDIA_TYPES:
        kinds = ", ".join(MEDIA_TYPES)
        raise bad_value(f"{where} is {told}; images are of {kinds}", where)
    return told
