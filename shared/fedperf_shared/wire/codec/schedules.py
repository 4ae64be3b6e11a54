"""The calendar and declared schedules to bytes and back (exchange.proto)."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import timedelta

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases import kinds
from fedperf_shared.releases.period import (
    ModelMethod,
    Period,
    SlotTimes,
    Timetable,
    from_unix_ms,
    to_unix_ms,
)
from fedperf_shared.releases.release import Schedule, Slot
from fedperf_shared.wire import exchange_pb2
from fedperf_shared.wire.codec.decoder import encoded, guarded, parse
from fedperf_shared.wire.codec.releases import key_from_message, key_to_message

PARAMETERS: Mapping[kinds.AnyKind, str] = {
    kinds.RESIDUAL_REPORT: "report",
    kinds.DIRECTED_REPORT: "directed",
    kinds.MODEL_UPDATE: "training",
    kinds.TANGENT_UPDATE: "tangent",
}
"""The field of each kind's parameters in a `Slot`, which names them as their class does."""


def encode_schedule(schedule: Schedule) -> bytes:
    """A schedule as bytes, equal for equal schedules."""
    return encoded(schedule_to_message(schedule))


def decode_schedule(payload: bytes) -> Schedule:
    """The schedule that `encode_schedule` wrote.

    Raises:
        InvalidInputError: not a schedule.
    """
    return schedule_from_message(guarded("schedule", lambda: parse(exchange_pb2.Schedule, payload)))


def timetable_to_message(timetable: Timetable) -> exchange_pb2.Timetable:
    """Domain to message."""
    return exchange_pb2.Timetable(
        period_start_unix_ms=to_unix_ms(timetable.period.start),
        window_ms=_to_ms(timetable.period.window),
        windows=timetable.period.windows,
        report_slots=[_times_to_message(each) for each in timetable.report_slots],
        model_slots=[_times_to_message(each) for each in timetable.model_slots],
        model_method=exchange_pb2.ModelMethod.Name(int(timetable.model_method)),
        extra_slots=[_times_to_message(each) for each in timetable.extra_slots],
        extra_windows=timetable.extra_windows,
        first_slots=[_times_to_message(each) for each in timetable.first_slots],
    )


def timetable_from_message(message: exchange_pb2.Timetable) -> Timetable:
    """Message to domain.

    Raises:
        InvalidInputError: not a timetable.
    """

    def decode() -> Timetable:
        period = Period(
            from_unix_ms(message.period_start_unix_ms),
            timedelta(milliseconds=message.window_ms),
            message.windows,
        )
        return Timetable(
            period,
            tuple(_times_from_message(each) for each in message.report_slots),
            tuple(_times_from_message(each) for each in message.model_slots),
            ModelMethod(message.model_method),
            tuple(_times_from_message(each) for each in message.extra_slots),
            message.extra_windows,
            tuple(_times_from_message(each) for each in message.first_slots),
        )

    return guarded("timetable", decode)


def schedule_to_message(schedule: Schedule) -> exchange_pb2.Schedule:
    """Domain to message."""
    return exchange_pb2.Schedule(
        timetable=timetable_to_message(schedule.timetable),
        slots=[_slot_to_message(slot) for slot in schedule.slots],
    )


def schedule_from_message(message: exchange_pb2.Schedule) -> Schedule:
    """Message to domain.

    Raises:
        InvalidInputError: not a schedule.
    """
    return guarded(
        "schedule",
        lambda: Schedule(
            timetable_from_message(message.timetable),
            tuple(_slot_from_message(slot) for slot in message.slots),
        ),
    )


def _slot_to_message(slot: Slot) -> exchange_pb2.Slot:
    name = PARAMETERS[kinds.kind_of(slot.parameters)]
    return exchange_pb2.Slot(key=key_to_message(slot.key), **{name: asdict(slot.parameters)})


def _slot_from_message(message: exchange_pb2.Slot) -> Slot:
    found = message.WhichOneof("parameters")
    for kind, name in PARAMETERS.items():
        if name == found:
            stored = getattr(message, name)
            values = {each.name: getattr(stored, each.name) for each in fields(kind.parameters)}
            return Slot(key_from_message(message.key), kind.parameters(**values))
    raise InvalidInputError("a slot has the parameters of a kind")


def _times_to_message(times: SlotTimes) -> exchange_pb2.SlotTimes:
    return exchange_pb2.SlotTimes(
        opens_after_ms=_to_ms(times.opens_after), replies_after_ms=_to_ms(times.replies_after)
    )


def _times_from_message(message: exchange_pb2.SlotTimes) -> SlotTimes:
    return SlotTimes(
        timedelta(milliseconds=message.opens_after_ms),
        timedelta(milliseconds=message.replies_after_ms),
    )


def _to_ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
