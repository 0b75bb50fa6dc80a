"""What Prometheus scrapes from a client of the API of Acme, read by Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from shelflife.apis.acme.app import EXAMPLE
from tests.calling import ADMIN

PATH = "/admin/metrics"


class Scraped(dict):
    """The samples of one scrape, by name and labels."""

    def __call__(self, name, **labels):
        return self.get((f"shelflife_{name}", frozenset(labels.items())))

    @property
    def names(self):
        return {name for name, _ in self}


def scraped(client, **options):
    answer = client.get(PATH, headers=ADMIN, **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = [*text_string_to_metric_families(answer.text)]
    samples = [one for family in families for one in family.samples]
    found = Scraped({(one.name, frozenset(one.labels.items())): one.value for one in samples})
    assert len(found) == len(samples)
    assert all(family.documentation for family in families)
    return found


def order(client, **more):
    headers = more.pop("headers", {})
    return client.post("/subscriptions", json={**EXAMPLE, **more}, headers=headers).status_code
