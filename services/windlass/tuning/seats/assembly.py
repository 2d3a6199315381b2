"""Builds the ledger of this machine."""

import os
import platform
from functools import partial

from windlass.core.app import App
from windlass.core.config.tuning import TuningSection
from windlass.tuning.seats.devices import as_environment, declared, demand_of
from windlass.tuning.seats.holding import TurnTaking
from windlass.tuning.seats.identity import identity
from windlass.tuning.seats.ledger import SeatLedger
from windlass.tuning.seats.parking import parking_of
from windlass.tuning.seats.seating import LedgerSeating
from windlass.tuning.seats.turns import TurnStore
from windlass.tuning_api.seating.turns import TurnPatience, TurnPolicy


async def seating_of(app: App, settings: TuningSection) -> LedgerSeating:
    """Seats of this machine's devices, kept for as long as the process serves."""
    section = settings.seats
    parking = parking_of(section.parking, section.cuda_checkpoint)
    policy = TurnPolicy(section.turns or TurnPolicy.FIFO)
    ledger = SeatLedger(
        app.database,
        platform.node(),
        identity(os.getpid()),
        takes_turns=bool(section.turns) and parking.frees_device,
        policy=policy,
    )
    taking = TurnTaking(
        store=TurnStore(app.database, policy, section.weights),
        is_on=bool(section.turns),
        parking=parking,
        patience=TurnPatience(section.turn_seconds, section.rest_seconds),
        drain_seconds=section.drain_seconds,
        parking_seconds=section.parking_seconds,
        restore_seconds=section.restore_seconds,
    )
    seating = LedgerSeating(
        ledger,
        taking,
        app.wake,
        partial(demand_of, section, settings.model_folders),
        partial(as_environment, section),
    )
    await ledger.declare(declared(section))
    app.background("tuning.seats", seating.run)
    app.before_stop(seating.close)
    return seating
