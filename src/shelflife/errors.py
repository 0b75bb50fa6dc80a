"""The one root of all errors of the package, and the whole tree below it.

ShelflifeError
├── ContractError             something is not a valid piece of the protocol
│   ├── BadName               the wire cannot carry how a table, relation or version is spelled
│   └── BadMessage            a message, a header or a query does not have its documented form
├── ServerError               something is wrong on the server side
│   ├── UsageError            the provider's own code or set-up is wrong
│   │   └── BadSetting        a setting has a value that it cannot have
│   ├── SourceError           a file or a query does not give a table
│   ├── BadRow                a table cannot hold such a key or row
│   ├── BadRule               a rule contradicts another, or names what is not there
│   ├── ReloadRefused         an operator's reload is wrong; nothing has changed
│   │   ├── TableMoved        the table is at another version than the one that is to be replaced
│   │   ├── UnknownTable      there is no such table
│   │   └── VersionTaken      the version already stands for other content
│   ├── LogError              the log cannot be read or written; nothing has changed
│   │   └── Overtaken         others have changed the tables at the same time, and were faster
│   ├── MalformedRequest      a request holds what JSON cannot carry: the client's mistake
│   ├── PolicyFailed          a policy raised, or returned what is no fix: the provider's bug
│   └── CallRefused           an endpoint of the contract answers with an error
├── Refusal                   a request is refused, with the fixes that would make it pass
│   ├── Rejected              it violates a policy
│   └── PreconditionFailed    what its remembered values rest on has moved
├── StoreError                a memory's store cannot do what it is asked to do
├── Distrust                  what a server says of its state is not to be believed
├── KeyFileError              a file holds no usable key or endorsement, or cannot be written
├── ServingError              an app does not start on loopback
├── Broken                    the API behind a proxy has not answered
├── Declined                  Acme's gateway refuses a payment
├── GatewayDown               Acme's gateway does not answer
├── LabError                  a run cannot be played
├── EngineError               an engine of a run is not there
├── WorkersError              the worker processes of a run do not start, or not come to one state
├── PlannerError              a planner cannot answer
├── RecordsError              records cannot be written or read
├── ScenarioError             a manifest is wrong
├── ReleasesError             the releases of real reference data cannot be had
├── ExhibitsError             exhibits cannot be written
└── CommandError              a command cannot do what it is asked to do
"""

__all__ = ["ShelflifeError"]


class ShelflifeError(Exception):
    """Any error of this package. The message says what is wrong in one sentence."""

    is_away = False
    """Whether it is because something does not answer, and not because of what was asked of it."""

    is_untried = False
    """Whether nothing was asked, for want of a way to do so. That says nothing of whether anybody would have answered."""
