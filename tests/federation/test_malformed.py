"""Replies that are not valid: none crashes the server's side, none is accepted.

Valid is what `check_reply` says it is: the reply of the sending node's agent to this round of this
experiment, with the asked number of steps, a step counter that goes on, and finite parameters of
the asked shape within the norm bound, whole by its checksum. Two kinds of mutation are tried: bytes
changed in transit, which the checksum must find; and fields changed and sealed again, which the
checks must find. An honest finite parameter replaced by another and sealed again *is* a valid
reply: no check can know it, so that is no mutation here.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fegsam as fg
from fegsam.federation.protocol import wire
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.inbox import Inbox
from fegsam.federation.protocol.ledger import FederationState, Ledger
from fegsam.federation.protocol.roster import Roster
from fegsam.federation.protocol.server import Round, Rules
from fegsam.federation.protocol.sparse_rows import pack_rows, unpack_rows
from fegsam.federation.protocol.starts import Starts
from fegsam.federation.protocol.wire import (
    FROM_NODE,
    Accepted,
    Expected,
    Failure,
    Hello,
    Refused,
    Reply,
    Trouble,
    WireError,
    decode,
    encode,
)
from helpers.frames import REPLY, body_of, sealed

FINGERPRINT = "0123456789abcdef" * 4
DIM = 12
ROWS = np.linspace(-1, 1, DIM)[None]
VALID = Reply(FINGERPRINT, 5, 2, 7, 42, pack_rows(ROWS))
EXPECTED = Expected(
    fingerprint=FINGERPRINT,
    round=5,
    steps=7,
    start=np.zeros(DIM),
    out=np.empty((1, DIM)),
    too_large=lambda changes: bool(np.abs(changes).max() > 1e9),
    hosted={2, 3},
    asked={1, 2, 3},
    answered={3},
    times=[35] * 4,
    unheard=[0] * 4,
)
NUMBERS = ("round", "agent", "steps", "time")


def judge(payload):
    """What the server does with a payload: the replies that it accepts, or why it does not."""
    try:
        messages = decode(payload, FROM_NODE)
    except WireError as error:
        return Refused(str(error))
    judged = [
        wire.check_reply(message, EXPECTED) for message in messages if isinstance(message, Reply)
    ]
    return next((one for one in judged if isinstance(one, Accepted)), Refused("nothing accepted"))


def test_the_reply_that_is_mutated_is_valid():
    assert sealed(body_of(VALID)) == encode(VALID)
    judged = judge(encode(VALID))
    assert isinstance(judged, Accepted)
    np.testing.assert_array_equal(EXPECTED.out, ROWS)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_no_reply(payload):
    assert isinstance(judge(payload), Refused)
    assert isinstance(judge(sealed(payload)), Refused)
    assert (
        isinstance(judge(sealed(body_of(VALID)[:60] + payload)), Refused)
        or payload == body_of(VALID)[60:]
    )


@st.composite
def changed_bytes(draw):
    """A valid payload with some bytes changed, cut out or put in."""
    payload = bytearray(encode(VALID))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(payload) - 1)))
        what = draw(st.sampled_from(["flip", "cut", "insert", "truncate"]))
        if what == "flip" and payload:
            payload[at] ^= draw(st.integers(1, 255))
        elif what == "cut":
            del payload[at : at + draw(st.integers(1, 30))]
        elif what == "insert":
            payload[at:at] = draw(st.binary(min_size=1, max_size=30))
        else:
            del payload[at:]
    return bytes(payload)


@settings(max_examples=400, deadline=None)
@given(changed_bytes())
def test_a_reply_changed_in_transit_is_refused(payload):
    assert isinstance(judge(payload), Refused) or payload == encode(VALID)


@st.composite
def changed_fields(draw):
    """A reply with one field wrong, and a checksum that is right."""
    name = draw(st.sampled_from([*NUMBERS, "fingerprint", "params", "shape"]))
    if name in NUMBERS:
        honest = getattr(VALID, name)
        value = draw(st.integers(0, 2**64 - 1).filter(lambda number: number != honest))
    elif name == "fingerprint":
        value = draw(st.binary(min_size=32, max_size=32)).hex()
        if value == FINGERPRINT:
            value = "00" * 32
    elif name == "shape":
        rows, columns = draw(st.integers(0, 3)), draw(st.integers(0, 20))
        rows_of = np.zeros((rows, columns if (rows, columns) != (1, DIM) else DIM + 1))
        name, value = "params", pack_rows(rows_of)
    else:
        spoiled = ROWS.copy()
        spoiled[0, draw(st.integers(0, DIM - 1))] = draw(
            st.sampled_from([np.nan, np.inf, -np.inf, 1.1e9, -1e300, 1.7e308])
        )
        value = pack_rows(spoiled, draw(st.sampled_from([None, ROWS[0]])))
    return dataclasses.replace(VALID, **{name: value})


@settings(max_examples=300, deadline=None)
@given(changed_fields())
def test_a_reply_with_a_wrong_field_is_refused_whatever_its_checksum(reply):
    assert isinstance(judge(encode(reply)), Refused)


def test_sizes_are_held_against_the_bytes_that_are_there():
    body = body_of(VALID)
    for at in range(0, len(body) - 8 * DIM - 7, 4):
        for value in (0, 1, 2**31, 2**62, 2**64 - 1):
            changed = body[:at] + value.to_bytes(8, "little") + body[at + 8 :]
            if changed != body:
                assert isinstance(judge(sealed(changed)), Refused)
    for length in (0, 1, len(body) - 1, len(body) + 1, 2**63, 2**64 - 1):
        assert isinstance(judge(sealed(body, length=length)), Refused)
    for code in range(256):
        if code != REPLY:
            assert isinstance(judge(sealed(body, code=code)), Refused)


@pytest.mark.parametrize("count", [0, 1, DIM + 1, 2**32 + 1, 2**60, 2**63, 2**64 - 2, 2**64 - 1])
@pytest.mark.parametrize("rest", [0, 12, 8 * DIM - 1, 8 * DIM + 1, 12 * (DIM + 1)])
def test_rows_of_another_size_than_theirs_are_refused(count, rest):
    if 12 * count == rest:
        rest += 12
    packed = VALID.params[:4] + count.to_bytes(8, "little") + bytes(rest)
    assert isinstance(judge(encode(dataclasses.replace(VALID, params=packed))), Refused)


@pytest.mark.parametrize(
    "message",
    [Hello(FINGERPRINT, (0, 2**64 - 1)), Failure(FINGERPRINT, 3, (), Trouble.BUSY), VALID],
)
def test_messages_come_out_as_they_went_in(message):
    (again,) = decode(encode(message), FROM_NODE)
    assert encode(again) == encode(message)
    assert type(again) is type(message)


@pytest.mark.parametrize(
    ("reply", "expected", "reason"),
    [
        ({}, {"asked": {1, 3}}, "not asked"),
        ({}, {"answered": {2}}, "duplicate"),
        ({"params": b"<f4\0" + VALID.params[4:]}, {}, "wrong dtype"),
        ({"time": 56}, {"unheard": [0, 0, 13, 0]}, "step counter ran ahead"),
    ],
)
def test_what_a_reply_is_held_to_has_a_name(reply, expected, reason):
    judged = wire.check_reply(
        dataclasses.replace(VALID, **reply), dataclasses.replace(EXPECTED, **expected)
    )
    assert judged == Refused(reason)


def test_steps_made_in_rounds_that_went_on_without_an_agent_are_counted():
    judged = wire.check_reply(
        dataclasses.replace(VALID, time=56), dataclasses.replace(EXPECTED, unheard=[0, 0, 14, 0])
    )
    assert isinstance(judged, Accepted)
    assert judged.lost == 14


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_rows_come_back_bit_for_bit(share):
    rng = np.random.default_rng(8)
    base = rng.normal(size=(2, 500))
    base[:, :10] = 0.0
    rows = np.where(rng.random((2, 500)) < share, rng.normal(size=(2, 500)), base)
    rows[:, 3], rows[0, 4], rows[1, 5] = -0.0, np.nan, 5e-324
    for known in (base, base[0], None):
        out = np.empty((2, 500))
        unpack_rows(pack_rows(rows, known), 0.0 if known is None else known, out)
        assert out.tobytes() == rows.tobytes()
    assert len(pack_rows(rows, base)) <= len(pack_rows(rows))


def mutated(rng, payload):
    """One seeded mutation: of the bytes, or of a field behind a right checksum."""
    kind = rng.integers(6)
    if kind == 0:
        flipped = bytearray(payload)
        flipped[rng.integers(len(flipped))] ^= 1 << int(rng.integers(8))
        return bytes(flipped)
    if kind == 1:
        return payload[: rng.integers(len(payload))]
    if kind == 2:
        at = rng.integers(len(payload) + 1)
        return payload[:at] + rng.bytes(int(rng.integers(1, 50))) + payload[at:]
    if kind == 3:
        one, other = np.sort(rng.integers(0, len(payload) + 1, 2))
        return payload[:one] + rng.bytes(int(other - one)) + payload[other:]
    if kind == 4:
        name = NUMBERS[rng.integers(len(NUMBERS))]
        value = int(rng.integers(0, 100)) if rng.random() < 0.5 else int(rng.integers(0, 2**63))
        return encode(dataclasses.replace(VALID, **{name: value}))
    body = bytearray(body_of(VALID))
    # Any byte before the parameters themselves: fingerprint, numbers, dtype and sizes.
    body[rng.integers(len(body) - 8 * DIM)] ^= 1 << int(rng.integers(8))
    return sealed(bytes(body))


def server_side(folder, claims=None):
    """The inbox of a server in round 5 that has asked agent 2 on node "n"; it never quarantines."""
    mdp = fg.examples.garnet(DIM // 2, 2, 2, discount=0.7, seed=0)
    fed = fg.Federation(mdp, fg.policies.uniform(DIM // 2, 2), num_agents=4)
    experiment = Experiment(
        fed, fg.QLearning(), step_size=0.1, sync_period=7, num_steps=70, agreed=FINGERPRINT
    )
    terms, rules = experiment.terms(), Rules(offences=10**9)
    events = []
    ledger = Ledger(terms, folder, events.append)
    roster = Roster(4, ledger.event, claims)
    roster.update(["n"])
    roster.hello("n", [2])
    state = FederationState.first(terms)
    state.times[:] = 35
    inbox = Inbox(terms, rules, roster, ledger, state, lambda: 0.0, Starts(FINGERPRINT), claims)
    state.round = 5
    return inbox, state, events


def open_round():
    start = np.zeros((1, DIM))
    return Round(5, 7, (7,), frozenset(range(4)), 0.0, start, outstanding={"n": {2}})


SPARSE = dataclasses.replace(VALID, params=pack_rows(np.eye(1, DIM, 3), np.zeros(DIM)))
OTHERS = (
    encode(SPARSE),
    encode(VALID, SPARSE),
    encode(Hello(FINGERPRINT, (2,))),
    encode(Failure(FINGERPRINT, 5, (2,), Trouble.BUSY)),
    encode(Hello(FINGERPRINT, tuple(range(400_000))))[:5000],
)


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_whatever_comes_the_server_goes_on(folder, count):
    """Also messages of other kinds with any of their bytes changed behind a right checksum: some of
    these are valid, and none raises or writes more than a few lines."""
    rng = np.random.default_rng(7)
    inbox, state, events = server_side(folder, Claims({"n": [2]}))
    lines = []
    for _ in range(count):
        code = int(rng.integers(1, 8))
        payload = OTHERS[rng.integers(len(OTHERS))]
        if rng.random() < 0.5:
            body = bytearray(payload[13:-32])
            for _ in range(rng.integers(1, 4)):
                body[rng.integers(len(body))] = rng.integers(256)
            payload = sealed(bytes(body), code=code)
        else:
            payload = mutated(rng, payload)
        current = open_round()
        before = len(events)
        inbox.take("n", payload, current)
        assert set(current.answered) <= {2}
        lines.append(len(events) - before)
    assert max(lines) <= 4
    assert np.delete(state.offences, 2).max() == 0
    assert state.average.tolist() == [0.0] * DIM


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_of_many_mutations_none_crashes_the_server_and_none_is_accepted(folder, count):
    rng = np.random.default_rng(6)
    inbox, state, _ = server_side(folder)
    payload = encode(VALID)
    tried = 0
    while tried < count:
        changed = mutated(rng, payload)
        if changed == payload:
            continue
        tried += 1
        current = open_round()
        inbox.take("n", changed, current)
        assert not current.answered, changed
    assert state.offences[2] == count
    current = open_round()
    inbox.take("n", payload, current)
    assert list(current.answered) == [2]
