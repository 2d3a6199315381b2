"""Images of a request, as an engine gets them: bytes of checked size, named apart by organization.

Engines fetch nothing. What they keep of an image they find again by its `uuid`, so the gateway
writes one that depends on whose it is, as it does with the salt of prompts (ADR 36, ADR 59).
"""

import asyncio
import binascii
import hmac
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from windlass.gateway.errors import HttpError
from windlass.gateway.inference.images.fetching import (
    HostNotListed,
    ImageFetcher,
    NotFetched,
    NoTurn,
)
from windlass.gateway.inference.images.room import ImageHold, ImageRoom, too_many_images
from windlass.inference_api.images.bounds import MAX_BYTES, MAX_PIXELS, MAX_PIXELS_TOGETHER
from windlass.inference_api.images.dimensions import Dimensions, UnreadableImage, dimensions
from windlass.inference_api.images.parts import KIND, ImagePart, ImagePlace, media_type

# For all images of a request.
SECONDS = 30.0
# An image is in the memory by itself, and a third larger in the body, as it is kept for another
# engine and as it is sent.
COPIES = 4
_MIB = 2**20
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])
_image = msgspec.json.Decoder(ImagePart)


class Inlined(NamedTuple):
    """A body whose images are all in it, and their dimensions."""

    body: bytes
    images: tuple[Dimensions, ...]


class Images:
    """Writes the images of requests into them."""

    def __init__(self, fetcher: ImageFetcher):
        self._fetcher = fetcher
        self.room = ImageRoom()

    async def inline(
        self,
        hold: ImageHold,
        project_id: str,
        body: bytes,
        places: Sequence[ImagePlace],
        salt: str,
    ) -> Inlined:
        """The request with its images; raises HttpError 400 that names the first bad one.

        `places` are those of a body that was checked, and `salt` its organization's. `hold` takes
        the bytes of the request; raises HttpError 503 where that is too much at once.
        """
        hold.take(len(body))
        draft = await asyncio.to_thread(_Draft, body, places)
        urls = [draft.url(place) for place in places]
        for place, url in zip(places, urls, strict=True):
            if not _is_data(url):
                with _told(place):
                    self._fetcher.admit(url)
        try:
            async with asyncio.timeout(SECONDS):
                contents = await self._contents(hold, project_id, places, urls)
        except TimeoutError:
            message = f"The images could not be fetched within {SECONDS:.0f} seconds together."
            raise HttpError(400, message, code="image_not_fetched", param="messages") from None
        return await asyncio.to_thread(draft.written, contents, salt)

    async def _contents(
        self, hold: ImageHold, project_id: str, places: Sequence[ImagePlace], urls: Sequence[str]
    ) -> list[bytes]:
        contents, left = [], MAX_BYTES
        # One after the other: what one takes of the bound, the next one lacks.
        for place, url in zip(places, urls, strict=True):
            if _is_data(url):
                content = await asyncio.to_thread(_decoded, place, url)
            else:
                with _told(place):
                    content = await self._fetcher.fetch(project_id, url, left)
            left -= len(content)
            if left < 0:
                raise _invalid(place, f"the images have more than {MAX_BYTES // _MIB} MiB together")
            hold.take(COPIES * len(content))
            contents.append(content)
        return contents


class _Draft:
    """A request whose images change; all else keeps its bytes."""

    def __init__(self, body: bytes, places: Sequence[ImagePlace]):
        self._fields = _object.decode(body)
        self._messages = _list.decode(self._fields["messages"])
        self._places = places
        self._contents: dict[int, list[msgspec.Raw]] = {}
        for place in places:
            if place.message not in self._contents:
                message = _object.decode(self._messages[place.message])
                self._contents[place.message] = _list.decode(message["content"])

    def url(self, place: ImagePlace) -> str:
        return _image.decode(self._contents[place.message][place.part]).image_url.url

    def written(self, contents: Sequence[bytes], salt: str) -> Inlined:
        """The body with these images; raises HttpError 400."""
        found, left = [], MAX_PIXELS_TOGETHER
        for place, content in zip(self._places, contents, strict=True):
            size = _measured(place, self.url(place), content)
            left -= size.pixels
            if size.pixels > MAX_PIXELS or left < 0:
                raise _invalid(
                    place,
                    f"an image has at most {MAX_PIXELS:,} pixels, all of a request together at "
                    f"most {MAX_PIXELS_TOGETHER:,}, and this one has {size.width} x {size.height}",
                )
            part = {
                "type": KIND,
                KIND: {"url": f"data:{size.media_type};base64,{b64encode(content).decode()}"},
                # It stands for the image wherever the engine keeps what it has made of one.
                "uuid": hmac.digest(salt.encode(), content, "sha256").hex(),
            }
            self._contents[place.message][place.part] = msgspec.Raw(msgspec.json.encode(part))
            found.append(size)
        for at, parts in self._contents.items():
            message = _object.decode(self._messages[at])
            message["content"] = msgspec.Raw(msgspec.json.encode(parts))
            self._messages[at] = msgspec.Raw(msgspec.json.encode(message))
        self._fields["messages"] = msgspec.Raw(msgspec.json.encode(self._messages))
        return Inlined(msgspec.json.encode(self._fields), tuple(found))


def _is_data(url: str) -> bool:
    return url[:5].lower() == "data:"


def _decoded(place: ImagePlace, url: str) -> bytes:
    try:
        return binascii.a2b_base64(url.partition(",")[2].encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise _invalid(place, "it is not in base64 (RFC 4648)") from error


def _measured(place: ImagePlace, url: str, content: bytes) -> Dimensions:
    try:
        found = dimensions(content)
    except UnreadableImage as error:
        raise _invalid(place, f"it {error}") from error
    if _is_data(url) and (told := media_type(url, place.url)) != found.media_type:
        raise _invalid(place, f"it is {found.media_type}, not {told}")
    return found


@contextmanager
def _told(place: ImagePlace) -> Iterator[None]:
    """Makes HttpError 400 of what a fetch raises, and 503 where it had no turn."""
    try:
        yield
    except HostNotListed as error:
        message = _message(place, str(error))
        raise HttpError(400, message, code="host_not_allowed", param=place.url) from error
    except NoTurn as error:
        raise too_many_images() from error
    except NotFetched as error:
        message = _message(place, str(error))
        raise HttpError(400, message, code="image_not_fetched", param=place.url) from error


def _invalid(place: ImagePlace, why: str) -> HttpError:
    return HttpError(400, _message(place, why), code="invalid_image", param=place.url)


def _message(place: ImagePlace, why: str) -> str:
    return f"Invalid image at '{place.url}': {why}."
