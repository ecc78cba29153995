"""Features against closed forms and against slow code that shares nothing with the package."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fegsam import ProblemError, features


def test_fourier_features_are_cosines_of_every_whole_frequency() -> None:
    low, high, order = [-1.0, 2.0], [3.0, 2.5], 3
    points = np.random.default_rng(0).uniform(low, high, size=(20, 2))
    rows = features.fourier(low, high, order)(points)
    for point, row in zip(points, rows, strict=True):
        x, y = (point[0] + 1.0) / 4.0, (point[1] - 2.0) / 0.5
        expected = [math.cos(math.pi * (i * x + j * y)) for i in range(4) for j in range(4)]
        np.testing.assert_allclose(row, expected, rtol=0.0, atol=1e-12)


def slow_tiles(point, low, high, tiles, tilings) -> list[int]:
    """The tile of each tiling, found by walking along exact edges."""
    found, before = [], 0
    for tiling in range(tilings):
        index = 0
        for i, x in enumerate(point):
            shift = Fraction(tiling * (2 * i + 1) % tilings, tilings)
            wide = (Fraction(high[i]) - Fraction(low[i])) / tiles[i]
            tile, edge = 0, Fraction(low[i]) + wide * (1 - shift)
            while Fraction(x) >= edge:
                tile, edge = tile + 1, edge + wide
            index = index * (tiles[i] + 1) + tile
        found.append(before + index)
        before += math.prod(count + 1 for count in tiles)
    return found


def test_tile_coding_finds_the_tiles_that_a_walk_along_the_edges_finds() -> None:
    low, high, tiles, tilings = [-1.0, 0.0, 2.0], [1.0, 4.0, 3.0], [3, 5, 2], 8
    coding = features.tiles(low, high, tiles, tilings)
    points = np.random.default_rng(1).uniform(low, high, size=(200, 3))
    expected = [slow_tiles(point, low, high, tiles, tilings) for point in points.tolist()]
    assert coding(points).tolist() == expected
    assert coding.dimension == 8 * 4 * 6 * 3
    assert coding.active == 8


def test_the_corners_of_the_box_and_what_lies_outside_stay_within_the_tiles() -> None:
    coding = features.tiles([0.0], [1.0], tiles=4, tilings=4)
    rows = coding([[0.0], [-9.0], [1.0], [9.0]])
    assert rows[0].tolist() == rows[1].tolist()
    assert rows[2].tolist() == rows[3].tolist()
    assert rows.max() < coding.dimension
    assert ((rows // 5) == np.arange(4)).all(), "one tile of each tiling"


def test_points_a_fraction_of_a_tile_apart_share_the_other_fraction_of_their_tiles() -> None:
    coding = features.tiles([0.0], [1.0], tiles=1, tilings=10)
    near, far = coding([[0.05]]), coding([[0.35]])
    assert (near == far).sum() == 7


def test_radial_features_are_gaussians_of_the_distance() -> None:
    row = features.radial([[0.0, 0.0], [3.0, 4.0]], width=5.0)([[0.0, 0.0]])[0]
    np.testing.assert_allclose(row, [1.0, math.exp(-0.5)], rtol=1e-15)


def test_a_table_and_one_hot_features_agree_on_the_identity() -> None:
    states = np.array([2, 0, 1, 2])
    identity = features.table(np.eye(3))
    np.testing.assert_array_equal(identity(states), features.one_hot(3).dense(states))
    assert features.one_hot(3)(states).shape == (4, 1)


ALL = [
    features.fourier([0.0, -1.0], [1.0, 1.0], 2),
    features.tiles([0.0], [1.0], 4, 2),
    features.radial([[0.0], [1.0]], 0.5),
    features.columns(3),
    features.one_hot(4),
    features.table([[1.0, 2.0], [3.0, 4.0]]),
]


@pytest.mark.parametrize("map", ALL, ids=[map.kind for map in ALL])
def test_a_plain_form_gives_the_same_map_back_and_every_setting_counts(map) -> None:
    plain = map.to_dict()
    again = features.from_dict(plain)
    assert again == map
    assert again.digest() == map.digest()
    assert len({other.digest() for other in ALL}) == len(ALL)
    observations = [[0.3] * map.width] if map.width else [1]
    np.testing.assert_array_equal(map(observations), again(observations))
    assert map.dense(observations).shape == (1, map.dimension)


def double(x):
    return 2.0 * x


def triple(x):
    return 3.0 * x


def test_functions_are_told_apart_by_their_code_and_by_probe_rows() -> None:
    ours, theirs = features.function(double, 1), features.function(triple, 1)
    assert ours.digest() != theirs.digest()
    probe = np.array([[0.0], [0.5]])
    ours.check_probe(probe, ours.dense(probe) + 0.9e-9)
    with pytest.raises(ProblemError, match=r"probe observation 1 differ by 0\.5"):
        ours.check_probe(probe, theirs.dense(probe))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: features.fourier(0, 0, 1), "low below its high"),
        (lambda: features.fourier([0], [1, 2], 1), "low has shape"),
        (lambda: features.fourier([0] * 9, [1] * 9, 99), "use fewer"),
        (lambda: features.fourier([0, 0], [1, 1], 1)([[1.0]]), "take 2 numbers"),
        (lambda: features.fourier(0, 1, 1)([[np.nan]]), "finite"),
        (lambda: features.tiles(0, 1, 0, 1), "tiles is 0"),
        (lambda: features.radial([], 1), "centers have shape"),
        (lambda: features.one_hot(3)([3]), r"is 3, but there are 3 states \(0 to 2\)"),
        (lambda: features.one_hot(3)([0.5]), "whole numbers"),
        (lambda: features.table([1.0]), "row per state"),
        (lambda: features.function(3, 1), "must be a function"),
        (lambda: features.function(double, 2)([[1.0]]), r"return shape \(1, 2\)"),
        (lambda: features.from_dict({"kind": "fourrier"}), "not known"),
        (lambda: features.from_dict({"kind": "one_hot", "size": 2}), "size"),
        (lambda: ALL[0].check_probe([[0, 0]], [[1.0]]), "elsewhere"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(call, told) -> None:
    with pytest.raises(ProblemError, match=told):
        call()
