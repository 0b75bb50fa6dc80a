"""What other draws of the organic streams would come to, by the oracle: run as a program it prints the table of docs/explanation/organic.md.

Nothing is played: the oracle says the same as all runs that were. The releases of the banks must have been fetched.
"""

from statistics import fmean

import msgspec

from shelflife.lab.organic.drawing import Organic, drawn_from
from shelflife.lab.organic.releases import file_of
from tests.lab.organic_oracle import predicted

DRAWS = 20
STREAMS = {
    f"{source}, {'enriched' if drifting else 'plain'}, {'skewed' if skew else 'even'}": Organic(
        releases=source, rows=200, requests=20, drifting=drifting, skew=skew
    )
    for source in ("banks", "zones")
    for drifting in (None, 0.4)
    for skew in (1.0, 0.0)
}
CONDUCTS = {
    "A1, first value": {"forgets": "nothing"},
    "A1, last value": {"forgets": "nothing", "takes_last": True},
    "A2": {"forgets": "table"},
    "A2D": {"forgets": "row"},
    "exact": {"forgets": "cell"},
}


def worked_out(organic):
    """For each conduct and draw: the share of the saving that is kept, and the stale values that are sent."""
    found = {name: [] for name in CONDUCTS}
    for draw in range(DRAWS):
        order = drawn_from(msgspec.structs.replace(organic, draw=draw))["order"]
        of_the_source = (organic.releases, file_of(organic.releases), order, organic.requests)
        most, least = predicted(*of_the_source, forgets="everything").retries, len(set(order))
        for name, conduct in CONDUCTS.items():
            got = predicted(*of_the_source, **conduct)
            found[name].append((100 * (most - got.retries) / (most - least), got.stale_sent))
    return found


def cell(numbers, digits):
    return f"{fmean(numbers):.{digits}f} ({min(numbers):.{digits}f} to {max(numbers):.{digits}f})"


def main():
    print(
        f"| rows, usage | {' | '.join(f'{name}: kept (%)' for name in CONDUCTS)} | stale sent by both A1 and exact |"
    )
    print("| --- " * (len(CONDUCTS) + 2) + "|")
    for name, organic in STREAMS.items():
        found = worked_out(organic)
        kept = [cell([share for share, _ in numbers], 1) for numbers in found.values()]
        sent = [
            cell([stale for _, stale in found[conduct]], 1)
            for conduct in ("A1, first value", "A1, last value", "exact")
        ]
        print(f"| {' | '.join([name, *kept, '; '.join(sent)])} |", flush=True)


if __name__ == "__main__":
    main()
