"""The page of scaling has the stored measurements, and what it says of them holds."""

from pathlib import Path

from benchmarks.bench_peers import PROGRAMS, read, table

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "how-it-scales.md"


def seconds():
    """Return processor seconds by data and program, of those that ended."""
    return {(x["data"], x["program"]): float(x["cpu"]) for x in read() if x["cpu"]}


def test_the_page_has_the_stored_lines():
    assert table() in PAGE.read_text(encoding="utf-8")


def test_every_line_was_measured_or_says_why_not():
    for line in read():
        assert line["program"] in PROGRAMS
        assert line["gib"] if line["cpu"] else line["engine"].startswith("more than")


def test_ten_times_as_fast_where_levels_meet_at_random():
    cpu, rows = seconds(), {x["data"]: int(x["rows"]) for x in read()}
    large = {data for data, n in rows.items() if n >= 100_000 and " × " in data}
    ended = {data for data in large if (data, "GPBoost iterative") in cpu}
    assert len(large) == 10
    assert len(ended) == 7
    for data in ended:
        assert cpu[data, "vcomp REML"] < 0.1 * cpu[data, "GPBoost iterative"]


def test_exact_fits_of_ten_thousand_rows_take_up_to_twice_as_long_as_the_peer():
    cpu, data = seconds(), "1,000 × 1,000"
    assert 1.5 < cpu[data, "vcomp REML"] / cpu[data, "GPBoost iterative"] <= 2.0


def test_monte_carlo_errors_are_below_a_hundredth_of_a_standard_error():
    """Above it a fit goes on with more probes."""
    shares = [float(x["share"]) for x in read() if x["program"].startswith("vcomp")]
    assert 0.0 < max(shares) < 0.01


def test_memory_is_below_the_peers_from_a_million_rows():
    gib = {(x["data"], x["program"]): float(x["gib"]) for x in read() if x["gib"]}
    rows = {x["data"]: int(x["rows"]) for x in read()}
    for (data, program), theirs in gib.items():
        if program == "GPBoost iterative" and rows[data] >= 1_000_000:
            assert gib[data, "vcomp REML"] < theirs


def test_a_fit_adds_less_than_a_third_of_the_peers_memory():
    """To what the process has in the smallest fits, where levels meet at random."""
    gib = {(x["data"], x["program"]): float(x["gib"]) for x in read() if x["gib"]}
    large = [x["data"] for x in read() if int(x["rows"]) >= 100_000 and " × " in x["data"]]
    for data in {data for data in large if (data, "GPBoost iterative") in gib}:
        ours, theirs = (
            gib[data, program] - gib["pupils, 30 schools", program]
            for program in ("vcomp REML", "GPBoost iterative")
        )
        assert ours < theirs / 3.0 or theirs < 0.05
