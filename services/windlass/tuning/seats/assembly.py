"""Builds the ledger of this machine, and the rules of turns."""

import os
import platform
from functools import partial

from windlass.core.app import App
from windlass.core.config.tuning import SeatsSection, TuningSection
from windlass.core.db import Database
from windlass.tuning.seats.devices import as_environment, declared, demand_of
from windlass.tuning.seats.holding import TurnTaking
from windlass.tuning.seats.identity import identity
from windlass.tuning.seats.ledger import SeatLedger
from windlass.tuning.seats.parking import parking_of
from windlass.tuning.seats.seating import LedgerSeating
from windlass.tuning.seats.turns import TurnStore
from windlass.tuning_api.seating.turns import TurnPatience, TurnPolicy


def takes_turns(section: SeatsSection) -> bool:
    """True where residents free their device for each other."""
    parking = parking_of(section.parking, section.cuda_checkpoint)
    return bool(section.turns) and parking.frees_device


def turn_policy(section: SeatsSection) -> TurnPolicy:
    """The rule for who comes next."""
    return TurnPolicy(section.turns or TurnPolicy.FIFO)


def turn_taking(database: Database, section: SeatsSection) -> TurnTaking:
    """The rules by which turns are taken."""
    return TurnTaking(
        store=TurnStore(database, turn_policy(section), section.weights),
        is_on=bool(section.turns),
        parking=parking_of(section.parking, section.cuda_checkpoint),
        patience=TurnPatience(section.turn_seconds, section.rest_seconds),
        drain_seconds=section.drain_seconds,
        parking_seconds=section.parking_seconds,
        restore_seconds=section.restore_seconds,
    )


async def seating_of(app: App, settings: TuningSection) -> LedgerSeating:
    """Seats of this machine's devices, kept for as long as the process serves."""
    section = settings.seats
    ledger = SeatLedger(
        app.database,
        platform.node(),
        identity(os.getpid()),
        takes_turns=takes_turns(section),
        policy=turn_policy(section),
    )
    seating = LedgerSeating(
        ledger,
        turn_taking(app.database, section),
        app.wake,
        partial(demand_of, section, settings.model_folders),
        partial(as_environment, section),
    )
    await ledger.declare(declared(section))
    app.background("tuning.seats", seating.run)
    app.before_stop(seating.close)
    return seating
