"""What a remembered fix may do to an outgoing request. Fixes are untrusted input."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, Protocol

import msgspec

from shelflife.client.entries import Entry, below_root
from shelflife.client.events import Applied, Refused
from shelflife.contract.merging import merged
from shelflife.contract.when import WHOLE_REQUEST, field_path

__all__ = ["Amended", "AnyGuard", "Guard", "amend"]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of many words takes longer to compile than this package to import, and not every memory has to amend a request."""
    return re.compile(pattern)


def _is_all_of(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


_NAME = partial(_is_all_of, r"(?!__)[A-Za-z0-9_.-]+")
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+"
_CREDENTIAL = partial(
    _is_all_of,
    r"(password|passwd|pwd|passphrase|passcode|pin|otp|totp|mfa|cvv|cvc|csc|secret|credential|authori[sz]ation|auth|oauth|jwt|bearer"
    r"|cookie|sessionid|(security|verification|access|recovery)code|seedphrase|security(answer|question)|(api|access|private|public|ssh|deploy|signing)key|certificate"
    r"|(access|refresh|auth|id|api|session|private|public|user|link|organization)token)s?",
)
_ADDRESS = partial(
    _is_all_of, r"(.*ur[li]|host|hostname|webhook|endpoint|.*callback|redirect|proxy|cidr|ip|ipaddress)s?"
)
_OF_THE_CALLER = (
    # how much
    "amount|amt|price|total|subtotal|fee|cost|quantity|quantities|qty|count|capacity|number of|weight|dose|dosage|discount|tip|balance"
    "|budget|declared value|customs value|insured value|insurance|premium|deposit|withdrawal|loan|rent|salary|wage|bonus|commission|bid"
    "|donation|tuition|deductible|stake|stop loss|notional|lots|leverage|seat|night|copies|adult|child|children|infant|replica"
    # what pays
    "|payment|pay|pmt|payout|transfer|refund|invoice|charge|credit|debit|capture|void|card|iban|bic|bicfi|swift|bank|account|acct|wallet"
    "|routing number|sort code"
    # who
    "|payer|payor|payee|customer|shopper|client|user|username|login|owner|sender|receiver|recipient|beneficiary|beneficiaries|heir|merchant|vendor|supplier"
    "|seller|buyer|shipper|consignee|debtor|creditor|dbtr|cdtr|patient|practitioner|prescriber|performer|student|teacher|tenant|landlord|passenger|traveler|traveller|guest|attendee"
    "|invitee|participant|member|subscriber|contact|person|employee|employer|manager|assignee|reviewer|collaborator|organizer|signer"
    "|guarantor|guardian|holder|spouse|kin|behalf|first name|last name|full name|legal name|maiden|birth|birth date|passport|ssn|social security"
    "|national id|tax id|vat id|driver license|gender|nationality|ethnicity|religion|flyer|loyalty"
    # where to, and when
    "|destination|origin|address|street|latitude|longitude|email|phone|telephone|cellphone|mobile|fax|domain|date|deadline"
    # consent, and who may do what
    "|consent|authorized|agree|agreed|agreement|accept|accepted|acceptance|acknowledged|confirm|confirmed|approve|approved|approval"
    "|waive|waiver|signature|opt in|opt out|subscribe|unsubscribe|tos|gdpr|marketing|role|permission|privilege|scope|grant|acl|visibility"
    "|public|publicly|private|admin|root|sudo|share|shared|access"
    # what cannot be taken back
    "|delete|deletion|destroy|remove|erase|wipe|drop|clear|purge|reset|kill|terminate|termination|shutdown|revoke|suspend|block|ban|disable|deactivate"
    "|permanent|permanently|force|overwrite|override|skip|cancel|archived|dry run"
)
_CALLER = partial(_is_all_of, rf"({_OF_THE_CALLER.replace(' ', '')})+(e?s|id|number|name)?")
_WHOM = partial(_is_all_of, r"(ship|bill|sold|send|pay|reply)?to|from|cc|bcc")
_FORM = partial(
    _is_all_of,
    r"types?|kind|format|unit|currency|country|language|locale|brand|category|class|version|mode|scheme",
)
_LARGEST_PARAMETERS = 16_384
_MOST_LAYERS = 32
_LONGEST_CHAIN = 8
"""So often at most is looked for what is remembered for the outcome: an honest server has no longer chains than policies."""

_TOO_LONG_A_CHAIN = f"it is found only after {_LONGEST_CHAIN} others, each of which calls for the next"
_BY_NAME = "by name in Guard(fields=...)"
_WITH_ALL = "with Guard(decides_for_caller=True)"
"""For what stands inside a field: `fields` allows only names at the top."""

_AN_OBJECT = b"{"
"""Stands for an object of any content; no JSON is that."""

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class AnyGuard(Protocol):
    """What is asked before a fix is applied: a `Guard`, or one that has more to say."""

    def refusal(self, entry: Entry) -> str | None:
        """Why an entry may not be applied; None when it may."""

    def objection(self, entry: Entry, outcome: Mapping[str, Any]) -> str | None:
        """Why what an entry makes of a request may not be sent, though the entry may be applied; None when it may."""


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """Which fixes may be applied. By default: those that name, at any depth, no credential, no network address, and nothing that only the
    caller may decide.

    It goes by the words of names: a `shipTo` is a `ship_to`. A word may stand for money or another quantity, for who or where, for consent
    or access, or for what cannot be taken back: then a name that has it is for the caller to decide, unless it ends with what is only the
    form of something, such as `_type`, `_unit`, `_currency` or `_country`. No list of words is complete. `fields` needs none.
    """

    operations: frozenset[str] | None = None
    """The operations whose requests may be amended; None for all. Each with its whole path, or as the server knows it: below the root of
    the contract."""

    fields: Mapping[str, frozenset[str]] | None = None
    """For each operation the fields that may be set; an operation that is not here allows none. None for any field."""

    decides_for_caller: bool = False
    """Whether a fix may also change all that is for the caller to decide, and that `fields` does not name."""

    def __post_init__(self) -> None:
        if not isinstance(self.fields, Mapping | None):
            raise ValueError("the fields of a guard are sets of names, each by its operation")
        given: list[object] = [self.operations, *(self.fields or {}).values()]
        if any(isinstance(names, str) for names in given):
            raise ValueError("the operations and fields of a guard are sets of names, and not one text")
        for operation in self.fields or ():
            if self.operations is not None and operation not in self.operations:
                raise ValueError(f"the guard names fields of {operation}, which may not be amended at all")

    def refusal(self, entry: Entry) -> str | None:
        """Why an entry may not be applied; None when it may."""
        names = {entry.operation, below_root(entry.root, entry.operation)}
        if self.operations is not None and names.isdisjoint(self.operations):
            return f"{entry.operation} is not among the operations that may be amended"
        if self.fields is not None and names.isdisjoint(self.fields):
            return f"{entry.operation} is not among the operations whose fields may be set"
        named = frozenset().union(*((self.fields or {}).get(name, ()) for name in names))
        unlisted = entry.parameters.keys() - named
        if self.fields is not None and unlisted:
            return f"{min(unlisted)!a} is not among the fields that may be set"
        for depth, layer in enumerate(_layers(entry.parameters)):
            if depth == _MOST_LAYERS:
                return "its parameters are nested too deeply"
            for name in (name for value in layer if isinstance(value, Mapping) for name in value):
                is_allowed = self.decides_for_caller or (depth == 0 and name in named)
                why = _suspicion(name, "" if is_allowed else _BY_NAME if depth == 0 else _WITH_ALL)
                if why is not None:
                    return f"{name[:64]!a} {why}"
        if len(msgspec.json.encode(entry.parameters)) > _LARGEST_PARAMETERS:
            return "its parameters are too large"
        return None

    def objection(self, entry: Entry, outcome: Mapping[str, Any]) -> str | None:
        """Why what an entry makes of a request may not be sent, though the entry may be applied; None when it may."""
        return None


def _layers(value: Any) -> Iterator[list[Any]]:
    """A value, then the values in it, then those in them; not by recursion, for nobody knows how deep it goes."""
    layer = [value]
    while layer:
        yield layer
        layer = [inner for outer in layer for inner in _values_in(outer)]


def _values_in(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _suspicion(name: str, remedy: str) -> str | None:
    """What is wrong with a name, by its words. `apiKey`, `api_key` and `apikey` are one; a `payment_token` is no `token`.

    `remedy` says how the user allows what is the caller's; it is empty where that is allowed.
    """
    if not _NAME(name):
        return "is no plain name"
    words = [word.lower() for word in _compiled(_WORD).findall(name)]
    terms = (*words, *map("".join, pairwise(words)))
    last = words[-1] if words else ""
    if words == ["token"] or any(map(_CREDENTIAL, terms)):
        return "looks like a credential"
    if any(map(_ADDRESS, (last, "".join(words[-2:])))):
        return "looks like an address"
    head = words[words.index("of") - 1] if "of" in words[1:] else last
    is_of_the_caller = any(map(_CALLER, terms)) or _WHOM(last)
    if remedy and is_of_the_caller and not _FORM(head):
        return f"is for the caller to decide; allow it {remedy}"
    return None


class Amended(msgspec.Struct, frozen=True):
    """A request with remembered fixes in it."""

    request: dict[str, Any]
    """The request as it is to be sent."""

    applied: list[Applied]
    """The fixes that are in it."""

    refused: list[Refused]
    """Those that were kept out, each with the reason."""


def amend(
    request: Mapping[str, Any], recall: Callable[[Mapping[str, Any]], Sequence[Entry]], guard: AnyGuard
) -> Amended:
    """Apply what is remembered for a request, then what is remembered for the outcome, each fix once.

    Where two fixes that are found at once set a field to different values neither is applied; one that is found later gives way.
    """
    amended = dict(request)
    applied: list[Applied] = []
    refused: list[Refused] = []
    settled: set[str] = set()
    for round in range(_LONGEST_CHAIN + 1):
        fresh = [entry for entry in recall(amended) if entry.id not in settled]
        if not fresh or round == _LONGEST_CHAIN:
            refused += (Refused(entry, _TOO_LONG_A_CHAIN) for entry in fresh)
            break
        claims = _claims((*(done.entry for done in applied), *fresh))
        set_just_now: set[str] = set()
        for entry in fresh:
            why = guard.refusal(entry) or _contradiction(entry, claims)
            is_recalled_for_it = set_just_now.isdisjoint(_fields_of(entry))
            if why is None and not (is_recalled_for_it or entry.applies_to(amended)):
                continue
            settled.add(entry.id)
            outcome = amended if why is not None else merged(amended, entry.parameters)
            why = why or guard.objection(entry, outcome)
            if why is not None:
                refused.append(Refused(entry, why))
            else:
                amended = outcome
                set_just_now.update({WHOLE_REQUEST}, (field_path("", name) for name in entry.parameters))
                applied.append(Applied(entry, entry.parameters))
    return Amended(amended, applied, refused)


def _fields_of(entry: Entry) -> Iterator[str]:
    """The fields of a request on which it depends whether an entry holds."""
    return (path.partition("/")[0] for path in (*entry.condition.when, *entry.condition.unless))


_Claims = Mapping[str, set[bytes]]
"""By field: all that fixes make of it. Each is read once, so that many fixes cost what they are, and not what each is to each other."""


def _claims(entries: Iterable[Entry]) -> _Claims:
    claims = defaultdict[str, set[bytes]](set)
    for entry in entries:
        for path, outcome in _outcomes(entry.parameters):
            claims[path].add(outcome)
    return claims


def _outcomes(parameters: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, bytes]]:
    """What a fix makes of each field. What only one of two sets inside an object is no quarrel."""
    for name, value in parameters.items():
        path = field_path(parent, name)
        if isinstance(value, Mapping):
            yield path, _AN_OBJECT
            yield from _outcomes(value, path)
        else:
            yield path, _encode_sorted(value)


def _contradiction(entry: Entry, claims: _Claims) -> str | None:
    name = next((path for path, _ in _outcomes(entry.parameters) if len(claims[path]) > 1), None)
    return None if name is None else f"another remembered fix sets {name!a} to something else"
