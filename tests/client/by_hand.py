"""A server by hand, and a memory of it: positions, a fix, and replies that say whatever a test wants."""

import json
from urllib.parse import parse_qs, urlsplit

from shelflife.client import Exchange, Memory, Reply

ROOT, OPERATION = "http://h:80", "POST /x"
JSON = {"content-type": "application/json"}
HERE, THERE, LATER, EARLIER, ANOTHER = "Abcdef5", "Ghijkl6", "Ghijkl7", "Mnopqr4", "Stuvwx5"
FIX = {
    "type": "F",
    "parameters": {"x": 1},
    "cache_hint": "cacheable",
    "tables": [{"table": "t", "version": "1"}],
    "rows": ["t:k"],
    "when": {},
}


class Server:
    """Answers questions by hand."""

    def __init__(self, **account):
        self.account = account
        self.fixes = [FIX]
        self.questions = []
        self.status = 200

    def __call__(self, question):
        url = urlsplit(question.url)
        self.questions.append(url.path)
        if url.path == "/contract/state":
            return Reply(200, b'{"table_versions": {"t": "1"}}')
        if self.status != 200 or not self.account:
            return Reply(self.status, b"{}") if self.status != 200 else None
        if question.body is not None:
            body = {"at": self.account["to"], "recovery_feedback": {"suggestions": self.fixes}}
            return Reply(200, json.dumps(body).encode())
        asked = {name: value for name, [value] in parse_qs(url.query).items()}
        answer = {"from": asked["from"], "nonce": asked["nonce"], **self.account}
        return Reply(200, json.dumps(answer).encode())


def replied(memory, named=None, status=200, headers=JSON, **members):
    reply = Reply(status, json.dumps(members).encode(), headers)
    return memory.observe(Exchange(ROOT, OPERATION, {}, reply, named))


def placed(at=HERE, **options):
    """A memory that knows a position, and a fix."""
    memory = Memory(**options)
    adopt(memory, at)
    return memory


def adopt(memory, at, **more):
    named = memory.contract_at(ROOT)
    account = {"to": at, "from": named.partition(";")[0], "nonce": named.partition("n=")[2], **more}
    return replied(memory, named, 422, at=account, recovery_feedback={"suggestions": [FIX]})
