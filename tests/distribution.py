"""Which tests a worker runs together, and which begin first.

A module is run by one worker: whatever it starts or plays for all its tests is started and played once. The long ones
(about eight seconds or more, of work or of waiting) come first, so that no worker is left with one at the end.
"""

_APART = {
    "tests/cli/test_cli.py",
    "tests/client/test_bound_histories.py",
    "tests/client/test_compact.py",
    "tests/client/test_exactness.py",
    "tests/fresh_environments.py",
    "tests/histories/test_histories.py",
    "tests/integrations/test_who_reads_a_body.py",
    "tests/server/test_reads.py",
    "tests/test_benchmarks.py",
    "tests/test_document_programs.py",
    "tests/test_tutorials.py",
}
"""Long modules whose tests have little in common."""

_TOGETHER = {
    "tests/server/test_sharing_a_log.py": "forked off a nursery",
    "tests/client/test_forks.py": "forked off a nursery",
    "tests/integrations/test_following.py": "forked off a nursery",
    "tests/integrations/test_following_odd.py": "forked off a nursery",
    "tests/agents/test_claude_agent_sdk.py": "the program of the Claude Agent SDK",
    "tests/agents/test_recipes.py": "recipes for agents",
    "tests/agents/test_over_mcp.py": "agents on the SDK of OpenAI",
    "tests/agents/test_openai_agents.py": "agents on the SDK of OpenAI",
    "tests/agents/test_pydantic_ai.py": "agents on the SDK of OpenAI",
    "tests/agents/test_langchain.py": "agents on the SDK of OpenAI",
    "tests/agents/test_by_hand.py": "agents on the SDK of OpenAI",
    "tests/agents/test_validation.py": "agents on the SDK of OpenAI",
    "tests/apis/test_fuzzing.py": "what is forked off Schemathesis",
    "tests/fleet/test_fleet.py": "a fleet",
    "tests/fleet/test_agents.py": "a fleet",
    "tests/lab/test_exhibits.py": "drawn by Matplotlib",
    "tests/lab/test_beyond.py": "drawn by Matplotlib",
    "tests/lab/test_exhibits_of_definitions.py": "drawn by Matplotlib",
    "tests/lab/test_report_layout.py": "drawn by Matplotlib",
    "tests/lab/test_settings_exhibits.py": "drawn by Matplotlib",
    "tests/lab/test_models.py": "asked through inspect-ai",
    "tests/lab/test_answers.py": "asked through inspect-ai",
    "tests/lab/test_targets.py": "the paper's runs",
    "tests/lab/test_conduct.py": "the paper's runs",
    "tests/lab/test_hostile.py": "hostile runs",
    "tests/lab/test_forecast.py": "forecasts",
    "tests/agents/test_mcp_recipes.py": "the SDK of MCP in processes",
    "tests/agents/test_mcp_transports.py": "the SDK of MCP in processes",
    "tests/client/test_signed.py": "signed states",
    "tests/cli/test_workers.py": "workers",
    "tests/server/test_workers.py": "workers",
    "tests/lab/test_against_an_oracle.py": "random streams",
    "tests/lab/test_audit.py": "runs that are audited",
    "tests/lab/test_definitions.py": "runs by other definitions",
    "tests/lab/test_grid.py": "jobs",
    "tests/lab/test_runs.py": "jobs",
    "tests/lab/test_over_mcp.py": "runs over MCP",
    "tests/lab/test_played_by_workers.py": "runs with workers",
    "tests/lab/test_presets.py": "presets",
    "tests/lab/test_scenarios.py": "scenarios",
    "tests/lab/test_wordings.py": "wordings",
    "tests/browser/test_page.py": "the page in a browser",
    "tests/server/test_known_clients.py": "clients of known kinds",
    "tests/server/test_scoring.py": "scores of workers that tell each other",
    "tests/server/test_log.py": "logs of which processes make use",
    "tests/test_imports.py": "agents on the SDK of OpenAI",
    "tests/test_fingerprints.py": "sources that three processes have read",
    "tests/test_book.py": "the book",
    "tests/test_postgres_databases.py": "databases that do not answer",
    "tests/test_sqlite_files.py": "files that others hold",
    "tests/integrations/test_httpx_time.py": "what is waited for",
}
"""Further long modules, with what takes its time when it is first needed."""


def _module_of(nodeid):
    return nodeid.partition("::")[0]


def rank_of(item):
    """The lower, the sooner a test is to begin."""
    module = _module_of(item.nodeid)
    return 0 if module in _APART else 1 if module in _TOGETHER else 2


def unit_of(nodeid):
    """The name of what a worker runs together with this test."""
    module = _module_of(nodeid)
    return nodeid if module in _APART else _TOGETHER.get(module, module)
