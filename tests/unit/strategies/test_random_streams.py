from itertools import product

from strategies.random_streams import DOWNLINK, UPLINK, random_stream


def test_no_two_streams_of_a_run_are_the_same():
    """Client 0's and the server's are two, in round 1 as in any other."""
    streams = product((1, 2), (UPLINK, DOWNLINK), range(4), range(1, 5))
    draws = [random_stream(*stream).integers(2**63) for stream in streams]
    assert len(set(draws)) == len(draws)


def test_a_stream_gives_the_same_numbers_again():
    assert random_stream(1, UPLINK, 2, 3).random() == random_stream(1, UPLINK, 2, 3).random()
