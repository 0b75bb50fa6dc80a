"""The public names of each module: a decision, to which the tests hold code and documents."""

PUBLIC = {
    "shelflife": {"__version__"},
    "shelflife.errors": {"ShelflifeError"},
    "shelflife.contract": set(
        "AskFixes BadMessage Changes ContractError ContractState Rule RulesChanges Suggestion"
        " TableChanges same_json split_node_id".split()
    ),
    "shelflife.server": set(
        "BadRow BadRule BadSetting Disclosure Fix Level MalformedRequest PolicyFailed PreconditionFailed Provider Registry Rejected ReloadLimits ReloadRefused ReloadReport Request RowView Rule Scoring ServerError Signing SourceError"
        " State SqliteLog LogError TableMoved TableSource TableView Tables UnknownTable UsageError VersionTaken Violation WireFormat"
        " csv_file every fix json_file sql_query toml_file".split()
    ),
    "shelflife.client": set(
        "EXACT MERGE_INSTRUCTION Amended Ask AsyncAsk Call Condition Entry Event Exchange Filed Forecast Foresight Grounds Guard Held Histories"
        " InProcessStore Knowledge Known Memory Question Reason Reply Root Seen Send Shape SqliteStore Statistics Store StoreError"
        " Strategy Tools Write Written amended_input contract_headers exchange exchange_async for_planner memory_block origin_of".split()
    ),
    "shelflife.client.events": set(
        "Alerted Applied Distrusted Event Evicted Ignored LogLost Reason Refused Restamped Saved StoreFailed Stored Suspected Unjudged".split()
    ),
    "shelflife.integrations.asgi": {"ContractMiddleware", "admin_app", "contract_app"},
    "shelflife.integrations.wsgi": {"ContractMiddleware", "contract_app"},
    "shelflife.integrations.flask": {"install"},
    "shelflife.integrations.django": {"RefusalsAnswered", "contract_urls"},
    "shelflife.integrations.proxying": {"proxy_app"},
    "shelflife.integrations.litestar": {"ContractPlugin"},
    "shelflife.integrations.httpx": {"AsyncMemoryTransport", "MemoryTransport"},
    "shelflife.integrations.httpx2": {"AsyncMemoryTransport", "MemoryTransport"},
    "shelflife.integrations.requests": {"MemoryAdapter"},
    "shelflife.integrations.aiohttp": {"memory_middleware"},
    "shelflife.integrations.claude_agent_sdk": {"memory_hooks"},
    "shelflife.integrations.langchain": {"MemoryMiddleware"},
    "shelflife.integrations.langchain_mcp": {"MemoryInterceptor"},
    "shelflife.integrations.openai_agents": {"memory_tool"},
    "shelflife.integrations.pydantic_ai": {"MemoryToolset"},
    "shelflife.integrations.fastapi": {"install"},
    "shelflife.integrations.starlette": {"install"},
    "shelflife.integrations.ed25519": {"KeyFileError", "SigningKey", "is_signed_by", "trust"},
    "shelflife.integrations.following": set("AsyncFollower CatchingUp Follower Following Offline".split()),
    "shelflife.integrations.fastmcp": {"install"},
    "shelflife.integrations.mcp": {"install"},
    "shelflife.integrations.opentelemetry": {"instrument"},
    "shelflife.integrations.mcp_client": {"following", "memory_client"},
    "shelflife.testing": {"Examined", "ServingError", "check_record", "examine", "serving"},
    "shelflife.apis.acme": {"ROTATED_CODES", "acme_app", "acme_provider"},
    "shelflife.apis.meetings": {"meetings_app", "meetings_provider"},
    "shelflife.apis.payouts": {"payouts_app", "payouts_provider"},
    "shelflife.apis.recipes": {"ROTATED_BRANDS", "recipes_app", "recipes_provider"},
    "shelflife.lab": set(
        "Conduct Consume LabError Message ModelPlanner Planner PlannerError Probe Proposal Record RecordFile RunScore RunSpec Usage"
        " play score_of".split()
    ),
    "shelflife.cli": {"command_parser", "main"},
}
