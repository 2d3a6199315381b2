"""A disk that remembers every write, and what a loss of power may leave of them.

Of what was not synced each write may be lost, may be there, or be there in part, whatever became of
those before it; the same holds for names in folders. What was synced is there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from windlass_vllm.checkpoints.disk import Disk


@dataclass(frozen=True)
class Step:
    """One call: what, of which file, and its content."""

    kind: str
    name: str
    offset: int = 0
    content: bytes = b""
    target: str = ""


class RecordingDisk(Disk):
    """A disk whose steps are kept."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.before = contents(folder)
        self.steps: list[Step] = []

    def write(self, name: str, offset: int, content: bytes | memoryview) -> None:
        self.steps.append(Step("write", name, offset, bytes(content)))
        super().write(name, offset, content)

    def truncate(self, name: str, size: int) -> None:
        self.steps.append(Step("truncate", name, size))
        super().truncate(name, size)

    def sync(self, name: str) -> None:
        self.steps.append(Step("sync", name))
        super().sync(name)

    def sync_folder(self, name: str = ".") -> None:
        self.steps.append(Step("sync_folder", name))
        super().sync_folder(name)

    def rename(self, name: str, target: str) -> None:
        self.steps.append(Step("rename", name, target=target))
        super().rename(name, target)

    def remove(self, name: str) -> None:
        if (self.folder / name).exists():
            self.steps.append(Step("remove", name))
        super().remove(name)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by relative name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@dataclass
class _File:
    durable: bytes = b""
    pending: list[Step] = field(default_factory=list)


@dataclass
class _NameChange:
    """Names that appear or, with None, vanish, at once; `waits` for these folders' syncs."""

    names: dict[str, "_File | None"]
    waits: set[str]


class PowerLoss:
    """The disk after some steps, and what may be found on it."""

    def __init__(self, before: dict[str, bytes], steps: list[Step]) -> None:
        self._live = {name: _File(content) for name, content in before.items()}
        self._durable: dict[str, _File | None] = dict(self._live)
        self._changes: list[_NameChange] = []
        for step in steps:
            getattr(self, f"_{step.kind}")(step)

    @property
    def pending(self) -> int:
        """The number of things that are not certain."""
        files = {id(one): one for one in (*self._live.values(), *self._durable.values()) if one}
        return len(self._changes) + sum(len(one.pending) for one in files.values())

    def leave(self, folder: Path, fate: Callable[[int], float]) -> None:
        """Writes what is found into a folder.

        `fate` of the n-th uncertain thing is 0 where it is lost, 1 where it is there, and between
        them the part of a write that is.
        """
        number = 0
        names = dict(self._durable)
        for change in self._changes:
            if fate(number) >= 0.5:
                names |= change.names
            number += 1
        found: dict[int, bytes] = {}
        for name, file in sorted(names.items()):
            if file is None:
                continue
            if id(file) not in found:
                content = bytearray(file.durable)
                for step in file.pending:
                    _apply(content, step, fate(number))
                    number += 1
                found[id(file)] = bytes(content)
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(found[id(file)])

    def _write(self, step: Step) -> None:
        if step.name not in self._live:
            file = self._live[step.name] = _File()
            self._changes.append(_NameChange({step.name: file}, {_folder(step.name)}))
        self._live[step.name].pending.append(step)

    _truncate = _write

    def _sync(self, step: Step) -> None:
        file = self._live[step.name]
        content = bytearray(file.durable)
        for one in file.pending:
            _apply(content, one, 1)
        file.durable, file.pending = bytes(content), []

    def _sync_folder(self, step: Step) -> None:
        for change in list(self._changes):
            change.waits.discard(step.name)
            if not change.waits:
                self._durable |= change.names
                self._changes.remove(change)

    def _rename(self, step: Step) -> None:
        file = self._live.pop(step.name)
        self._live[step.target] = file
        waits = {_folder(step.name), _folder(step.target)}
        self._changes.append(_NameChange({step.name: None, step.target: file}, waits))

    def _remove(self, step: Step) -> None:
        del self._live[step.name]
        self._changes.append(_NameChange({step.name: None}, {_folder(step.name)}))


def _folder(name: str) -> str:
    return str(PurePosixPath(name).parent)


def _apply(content: bytearray, step: Step, part: float) -> None:
    """Does a write to a file's bytes: all of it, none, or sectors and a last cut one."""
    if step.kind == "truncate":
        if part >= 0.5:
            del content[step.offset :]
        return
    size = int(len(step.content) * part)
    if not size:
        return
    if len(content) < step.offset:
        content.extend(bytes(step.offset - len(content)))
    if 0 < part < 1 and int(part * 1000) % 2:
        # The last sectors came, the first did not.
        begin = len(step.content) - size
        end = step.offset + len(step.content)
        content.extend(bytes(max(0, end - len(content))))
        content[step.offset + begin : end] = step.content[begin:]
        return
    content[step.offset : step.offset + size] = step.content[:size]
