"""The apps that have the contract: which operations they have, and which of these are known to check their
requests."""

import logging
import re
from collections.abc import Callable, Collection

from shelflife.server.errors import UsageError
from shelflife.server.operations import Operation, Operations, operation_name
from shelflife.server.pins import Pin
from shelflife.server.policies import Policies

__all__ = ["Apps"]

_log = logging.getLogger("shelflife")
_MOST_WARNINGS = 1000
_ANY = re.compile("")


class Apps:
    """What a provider knows of the apps that it is installed in."""

    def __init__(self, policies: Policies, on_news: Callable[[], None]) -> None:
        """`on_news` is called when something is new that policies have to be held to."""
        self._policies, self._on_news = policies, on_news
        self._listings: list[Callable[[], Operations | None]] = []
        self._disclosed = Operations()
        self._operations: Operations | None = None
        self.is_noting_checks = False
        """Whether it counts which operations check their requests."""
        self._checked: set[str] = set()
        self.are_held = False
        """Whether policies were held to routes since anything was new."""
        self._warned: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._listings)

    def be_unheld(self) -> None:
        """Something is new that policies have to be held to, before the next request is served."""
        self.are_held = False
        self._on_news()

    def attach(self, list_operations: Callable[[], Operations | None]) -> None:
        """Note that an app has the contract, and how to list its operations (None: they cannot be listed)."""
        self._listings.append(list_operations)
        self.be_unheld()

    def attach_unseen(self, names: Collection[str] | None) -> Callable[[str, str], Operation | None]:
        """Note that an app has the contract whose routes cannot be seen; `names` are its operations, as far as somebody says them.

        Gives what finds the operation of a request by its method and path, as far as that can be told.
        """
        listed = None if names is None else Operations.named(names, is_stamped=True)
        self.attach(lambda: listed)

        def find(method: str, path: str) -> Operation | None:
            known = self._policies.operations if listed is None else listed
            operation = known.guess(method, path)
            if operation is None and listed is None and not known.has_like(path):
                return Operation(f"{method} {path}", _ANY)  # some other one, for all that can be known
            return operation

        return find

    def has_operation(self, name: str | None) -> bool:
        """Whether one of them is known to have an operation of this name, or a policy is for it alone."""
        return name in self._policies.operations or (
            self._operations is not None and name in self._operations
        )

    def disclosed_fixes(
        self, list_operations: Callable[[], Operations], names: Collection[str] | None
    ) -> Callable[[str], Operation | None]:
        """Turns what a client asks for into an operation whose fixes are told to whoever may ask the contract; else None.

        These are the ones that are named, which must be there like the operations of policies, or else the ones that
        nothing of their own guards. Policies for every operation are as open as the most open operation. So where any
        is guarded, an operation must be known to check its requests.
        """
        named = Operations.named(names or ())
        self._disclosed = Operations.union([self._disclosed, named])
        self.be_unheld()

        def disclosed(asked: str) -> Operation | None:
            operations = list_operations()
            operation = operations.find_named(asked)
            if operation is None:
                return None
            if names is not None:
                is_told = operation.name in named
            else:
                is_open = not operation.is_guarded and operation.is_shown
                is_told = is_open and (operations.are_all_open or self._is_checked(operation.name))
            return operation if is_told else None

        return disclosed

    def hold_policies_to_routes(self) -> None:
        """Before the first request, check that every operation that is named is there; else `UsageError`."""
        listed = [list_operations() for list_operations in self._listings]
        operations = None
        if None not in listed:
            operations = Operations.union(one for one in listed if one is not None)
            self.is_noting_checks = not operations.are_all_open
            self._check_that_there_are(self._policies.operations, "there is a policy for", operations)
            self._check_that_there_are(self._disclosed, "fixes are to be told of", operations)
        # At once, and last: other threads may be in a check.
        self._operations, self.are_held = operations, True

    def operation_of(self, given: str | None, pin: Pin | None) -> str | None:
        """The operation whose policies count; None when no policy is for one alone. One that cannot be told
        is an error, so that no policy is passed over."""
        is_for_one, known = self._policies.are_for_one, self._operations
        if given is not None:
            name = operation_name(given)
            if known is not None and not (name in known or known.may_have(name)):
                raise UsageError(f"a check is for {name}, and the app has no such route")
            return name
        if not is_for_one and not self.is_noting_checks:
            return None
        operation = None if pin is None else pin.find_operation()
        if operation is None and is_for_one:
            why = (
                "no request is at hand that says which: install the provider in an app, or give the operation"
                if pin is None
                else "it cannot be seen which one this request is for: give it to check"
            )
            raise UsageError(f"some policies are for one operation alone, and {why}")
        found = None if operation is None else operation.name
        if known is None:
            self._warn_of_unlisted(found)
        elif found is not None:
            self._checked.add(found)
        return found

    def warn_once(self, warning: str) -> None:
        """Log a warning, and not again. Two threads may both find it new, and say it twice."""
        if warning not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(warning)
            _log.warning("%s", warning)

    def warn_of_guards(self, operations: Operations, remedy: str) -> None:
        """Warn of operations that ask for something that the contract's endpoints do not. `remedy` says what
        to do about it; empty when it is meant."""
        named = {one.name: sorted({*one.guards} - {""}) for one in operations}
        asking = sorted((operation, names) for operation, names in named.items() if names)
        if remedy and asking:
            operation, names = asking[0]
            others = f" (and {len(asking) - 1} more)" if len(asking) > 1 else ""
            self.warn_once(
                f"{operation}{others} asks for {' and '.join(names)}, and the contract's endpoints do not:"
                f" whoever can reach them is told the tables and their versions; {remedy}"
            )

    def _is_checked(self, operation: str) -> bool:
        """Whether an operation is known to check its requests."""
        return operation in self._checked or operation in self._policies.operations

    def _check_that_there_are(self, needed: Operations, why: str, operations: Operations) -> None:
        for name in (one.name for one in needed if one.name not in operations):
            if not operations.may_have(name):
                meant = operations.closest_to(name)
                hint = f"; is it {meant}?" if meant else ""
                raise UsageError(f"{why} {name}, and the app has no such route{hint}")
            self.warn_once(f"{why} {name}, and nobody can see whether the app has such a route")

    def _warn_of_unlisted(self, operation: str | None) -> None:
        unseen = [one.name for one in self._policies.operations if one.name != operation]
        if unseen:
            self.warn_once(
                "there are policies for " + ", ".join(unseen) + ", and nobody has looked whether the app has"
                " such routes, for these cannot be listed; give ContractMiddleware its operations"
            )
