"""Registries on logs, which are opened and closed again and again."""

import os
import signal
import sqlite3

from shelflife.contract import Rule
from shelflife.server import Registry, SqliteLog
from shelflife.server.logs import is_file, log_at

CODES = {"growth": {"code": "SUMMER"}, "scale": {"code": "SCALE"}}
TIE = Rule(from_table="codes", to_table="promos", relation="needs", via="code")


class Opened:
    """A registry on a log that is closed at the end of the block, as a process would."""

    def __init__(self, path, codes=CODES, rules=(TIE,), **options):
        self.file = log_at(path) if is_file(path) is None else SqliteLog(path, busy_timeout_s=60)
        tables = {"codes": codes, "promos": {"SUMMER": {}, "WINTER": {}}}
        options = {"versions": {"codes": "1.0.0", "promos": "1.0.0"}} | options
        try:
            self.registry = Registry(tables, rules, log=self.file, **options)
        except BaseException:
            self.file.close()
            raise

    def __enter__(self):
        return self.registry

    def __exit__(self, *exception):
        self.registry.close()


def fork_again_and_again(place):
    with Opened(place) as reg:
        reg.follow()
        for number in range(20):
            with reg._changing:  # as though another thread had it
                child = os.fork()
                if child == 0:
                    signal.alarm(120)
                    reg.reload_table("codes", set={"growth": {"code": f"of child {number}"}})
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            reg.catch_up()
            assert reg.rows("codes")["growth"] == {"code": f"of child {number}"}
        reg.reload_table("codes", set={"growth": {"code": "of the parent"}})
        reg.close()
        if is_file(place) is not None:
            assert sqlite3.connect(place).execute("pragma integrity_check").fetchone() == ("ok",)
