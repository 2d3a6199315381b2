"""Has one running engine take the weights of a run in place, version after version."""

import asyncio
import contextlib
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.confinement import Confinement
from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass.weight_versions import FolderMedium, WeightsRefused
from windlass.weight_versions.writing import DATA, MANIFEST
from windlass_agent.download import DownloadError, LocalObjects, fetch_versions, no_objects
from windlass_agent.engines.port import EngineControl, EngineError
from windlass_agent.machine.program_output import last_error

log = telemetry.logger("engines")
RETRY_SECONDS = 2.0
MAX_RETRY_SECONDS = 60.0
# An engine that slept, or began anew, has its model's own weights again.
RESYNC_SECONDS = 10.0
_FOLDER = re.compile(r"[A-Za-z0-9_-]{1,128}")
_UNABLE = "Engines of this kind take no weights in place."


class WeightFollower:
    """The weights that an engine should follow, the version that it has, and what is wrong."""

    def __init__(
        self,
        folder: Path,
        confinement: Confinement,
        changed: Callable[[], None],
        *,
        media: Path | None = None,
        local: LocalObjects = no_objects,
    ):
        """The engine reads `folder`. `media` has folders of versions, where there is a volume."""
        self._folder = folder
        self._confinement = confinement
        self._changed = changed
        self._media = media
        self._local = local
        self._wanted = pb.FollowedWeights()
        self._news = asyncio.Event()
        self._error = ""
        self.version = 0
        """The version that the engine answers by."""

    @property
    def error(self) -> str:
        """Returns why the engine has not the newest version; empty otherwise."""
        return self._error or self._wanted.message

    def told(self, capabilities: pb.EngineCapabilities) -> None:
        """Notes the version that answers, where the engine follows a run."""
        if self._wanted.run_id:
            capabilities.weight_version = self.version

    def want(self, wanted: pb.FollowedWeights) -> None:
        """Replaces the weights to follow."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._news.set()

    def forget(self) -> None:
        """Forgets the version, since the engine has ended."""
        self.version, self._error = 0, ""

    async def keep(self, control: EngineControl, *, able: bool) -> None:
        """Has the engine take each version that comes, until cancelled."""
        failures = 0
        while True:
            self._news.clear()
            done = await self.take(control, able=able)
            failures = 0 if done else failures + 1
            pause = RESYNC_SECONDS
            if not done:
                pause = doubled(RETRY_SECONDS, failures - 1, longest=MAX_RETRY_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()

    async def take(self, control: EngineControl, *, able: bool) -> bool:
        """Puts the newest version in place; returns False where it has to be tried again."""
        wanted = self._wanted
        if not wanted.run_id:
            return True
        if not able:
            self._become(self.version, _UNABLE)
            return True
        try:
            held = await control.weight_version()
            newest = wanted.versions[-1].version if wanted.versions else 0
            if newest > held:
                await self._bring(wanted, held)
                await control.update_weights(newest, self._folder)
                held = await control.weight_version()
        except (EngineError, DownloadError, WeightsRefused, OSError) as error:
            said = last_error(str(error)) or "The weights were not taken."
            log.warning("weights_not_followed", run=wanted.run_id, error=str(error)[:2000])
            self._become(self.version, said)
            return False
        finally:
            await asyncio.to_thread(self._clear)
        self._become(held, "")
        return True

    async def _bring(self, wanted: pb.FollowedWeights, held: int) -> None:
        """Puts the versions that lead from what is held to the newest where the engine reads."""
        lacking = [one for one in wanted.versions if one.version > held]
        if wanted.folder:
            await self._copy(wanted.folder, lacking)
        else:
            await self._download(lacking)
        self._confinement.show(self._folder)

    async def _download(self, versions: Sequence[pb.WeightVersion]) -> None:
        for one in versions:
            names = {file.path for file in one.files}
            if names != {DATA, MANIFEST}:
                raise DownloadError(f"Version {one.version} is not {DATA} and {MANIFEST}.")
            await fetch_versions(list(one.files), self._at(one.version), local=self._local)

    async def _copy(self, name: str, versions: Sequence[pb.WeightVersion]) -> None:
        if self._media is None:
            raise DownloadError("This machine has no folder of weight versions (weights_folder).")
        if not _FOLDER.fullmatch(name):
            raise DownloadError("The weights lie in no folder of weight versions.")
        root = self._media / name
        medium = FolderMedium(root, self._folder)
        for one in versions:
            manifest = (await medium.manifest(one.version)).content()
            async with medium.fetch(one.version) as fetched:
                target = self._at(one.version)
                target.mkdir(mode=0o700)
                await asyncio.to_thread((fetched / DATA).rename, target / DATA)
                (target / MANIFEST).write_bytes(manifest)

    def _at(self, version: int) -> Path:
        return self._folder / f"{version:016}"

    def _clear(self) -> None:
        # What is in place is not read again; what failed is brought anew.
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                shutil.rmtree(path, ignore_errors=True)

    def _become(self, version: int, error: str) -> None:
        if (version, error) != (self.version, self._error):
            self.version, self._error = version, error
            self._changed()
